"""Loops left, tasks cancelled, clients closed: draft and session are free again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from harness.serving import (
    GREEDY,
    PROMPT,
    Serving,
    connected,
    greedy_ids,
    ids_of,
    related_draft,
    serving,
    toy_target,
    until,
)
from numpy.typing import NDArray

from edge_sdk.errors import InvalidRequest, TransportError

METHODS = ["greedy", "hybrid", "autoregressive"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kept", [True, False])
async def test_leaving_the_loop_frees_draft_and_session(
    server: Serving, method: str, kept: bool
) -> None:
    await until(lambda: server.sessions == 0)
    async with connected(server, related_draft()) as client:
        stream = client.generate(PROMPT, method=method, sampling=GREEDY, max_tokens=3000)
        async for _ in stream:
            break
        if not kept:
            del stream
        async with asyncio.timeout(5):
            text = await ids_of(client.generate(PROMPT, method="greedy", max_tokens=4))
            await until(lambda: server.sessions == 0)
        if kept:
            assert [piece async for piece in stream] == []
    assert text == greedy_ids(server.target, PROMPT, 4)


async def test_cancelling_while_a_verify_is_in_flight() -> None:
    with serving(lambda: toy_target(seconds_per_pass=0.3)) as server:
        async with connected(server, related_draft()) as client:
            task = asyncio.create_task(ids_of(client.generate(PROMPT, max_tokens=500)))
            await until(lambda: server.target.passes >= 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(5):
                assert len(await ids_of(client.generate(PROMPT, max_tokens=1))) == 1
                await until(lambda: server.sessions == 0)


async def test_cancelling_while_the_draft_computes(server: Serving) -> None:
    entered = threading.Event()
    draft = related_draft()
    logits = draft._logits

    def slow(ids: Sequence[int]) -> NDArray[np.floating]:
        entered.set()
        time.sleep(0.05)
        return logits(ids)

    draft._logits = slow
    async with connected(server, draft) as client:
        task = asyncio.create_task(ids_of(client.generate(PROMPT, gamma=60, max_tokens=500)))
        assert await asyncio.to_thread(entered.wait, 5)
        task.cancel()
        begin = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        # One token at most is drafted on, not the other 59.
        assert time.monotonic() - begin < 1
        draft._logits = logits
        assert await ids_of(client.generate(PROMPT, method="greedy", max_tokens=4)) == greedy_ids(
            server.target, PROMPT, 4
        )


@pytest.mark.parametrize("method", METHODS)
async def test_closing_the_client_ends_a_text_in_another_task(method: str) -> None:
    with serving(lambda: toy_target(seconds_per_pass=0.02)) as server:
        async with connected(server, related_draft()) as client:
            stream = client.generate(PROMPT, method=method, sampling=GREEDY, max_tokens=3000)
            task = asyncio.create_task(ids_of(stream))
            await until(lambda: len(stream.tokens) > 2)
            async with asyncio.timeout(5):
                await client.aclose()
                with pytest.raises((InvalidRequest, TransportError), match=r"closed|connection"):
                    await task
            await client.aclose()
            with pytest.raises(InvalidRequest, match="client is closed"):
                await ids_of(client.generate(PROMPT, method="autoregressive"))


async def test_closing_the_client_ends_a_text_that_nobody_reads(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        stream = client.generate(PROMPT, max_tokens=3000)
        await anext(stream)
        await client.aclose()
    await until(lambda: server.sessions == 0)


@pytest.mark.parametrize("method", METHODS)
async def test_closing_the_client_after_leaving_the_loop_closes_the_session(
    server: Serving, method: str
) -> None:
    await until(lambda: server.sessions == 0)
    async with connected(server, related_draft()) as client:
        async for _ in client.generate(PROMPT, method=method, sampling=GREEDY, max_tokens=3000):
            break
    assert server.sessions == 0


async def test_streams_that_are_never_read(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        client.generate(PROMPT)
        async with client.generate(PROMPT) as stream:
            pass
        await stream.aclose()
        aiter(client.generate(PROMPT))
        assert [piece async for piece in stream] == []
        assert await ids_of(client.generate(PROMPT, max_tokens=2))
