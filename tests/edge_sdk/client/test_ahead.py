"""Blocks that travel while the next ones are drafted: the text is the same."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest
from harness.serving import (
    GREEDY,
    PROMPT,
    VOCABULARY,
    Faults,
    Serving,
    connected,
    greedy_ids,
    ids_of,
    other_draft,
    related_draft,
    serving,
    toy_target,
)
from numpy.typing import NDArray

from edge_sdk import EdgeClient, Retry
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.draft.toy_table import ToyTable

TOKENS = 60
AHEAD = [(1, 2), (3, 2), (2, 4), (4, 8), (7, 3)]
PATIENT = Retry(attempts=12, first=0.02, longest=0.3)


def lose_every_session(server: Serving) -> None:
    host = server.app.state.host

    async def lose() -> None:
        for owner, session_id in host.held():
            await host.close(owner, session_id)

    assert server.loop is not None
    asyncio.run_coroutine_threadsafe(lose(), server.loop).result(timeout=10)


async def own_text(client: EdgeClient, **options: Any) -> list[int]:
    return await ids_of(
        client.generate(PROMPT, method="autoregressive", seed=9, max_tokens=TOKENS, **options)
    )


@pytest.mark.parametrize("transport", ["http", "websocket"])
@pytest.mark.parametrize(("gamma", "window"), AHEAD)
async def test_coupled_texts_are_the_servers_own(
    server: Serving, transport: str, gamma: int, window: int
) -> None:
    for draft in (related_draft(), other_draft()):
        async with connected(server, draft, transport=transport) as client:
            stream = client.generate(
                PROMPT, method="coupled", seed=9, max_tokens=TOKENS, gamma=gamma, window=window
            )
            assert await ids_of(stream) == await own_text(client)
            assert stream.stats.rounds > stream.stats.target_calls, "nothing was ever stale"


@pytest.mark.parametrize("method", ["greedy", "hybrid", "candidates", "upload"])
@pytest.mark.parametrize(("gamma", "window"), AHEAD)
async def test_greedy_texts_are_the_servers_own(
    server: Serving, method: str, gamma: int, window: int
) -> None:
    async with connected(server, related_draft()) as client:
        stream = client.generate(
            PROMPT, method=method, sampling=GREEDY, max_tokens=TOKENS, gamma=gamma, window=window
        )
        assert await ids_of(stream) == greedy_ids(server.target, PROMPT, TOKENS)
        assert stream.finish == "length"


async def test_a_fixed_pace_repeats_a_text(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        texts = [
            await ids_of(client.generate(PROMPT, seed=4, max_tokens=40, gamma=3)) for _ in range(2)
        ]
    assert texts[0] == texts[1]


async def test_the_device_drafts_while_blocks_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a slow target most blocks leave before the verdict of the one before them."""
    with serving(lambda: toy_target(seconds_per_pass=0.03)) as server:
        async with connected(server, related_draft()) as client:
            stream = client.generate(
                PROMPT, method="coupled", seed=9, max_tokens=TOKENS, gamma=2, window=4
            )
            in_flight = []
            sending = client.transport.verify

            async def verify(*message: Any) -> Any:
                in_flight.append(1)
                overlapping.append(len(in_flight))
                try:
                    return await sending(*message)
                finally:
                    in_flight.pop()

            overlapping: list[int] = []
            monkeypatch.setattr(client.transport, "verify", verify)
            await ids_of(stream)
    assert sum(overlapping) / len(overlapping) > 1.5


@pytest.mark.parametrize("fault", ["lose", "refuse", "cut", "slow"])
@pytest.mark.parametrize("method", ["greedy", "coupled"])
async def test_a_bad_network_does_not_change_the_text(
    server: Serving, method: str, fault: str
) -> None:
    options: dict[str, Any] = {"method": method, "seed": 9, "max_tokens": 30, "gamma": 2}
    async with connected(server, related_draft()) as client:
        undisturbed = await ids_of(client.generate(PROMPT, **options))
    faults = Faults("/verify", [fault, "ok", "ok"] * 20)
    async with connected(server, related_draft(), faults=faults, retry=PATIENT) as client:
        assert await ids_of(client.generate(PROMPT, **options, window=4)) == undisturbed
    assert faults.seen > 6


@pytest.mark.parametrize("transport", ["http", "websocket"])
@pytest.mark.parametrize("method", ["greedy", "coupled", "hybrid"])
async def test_windows_that_are_lost_are_sent_again(
    server: Serving, method: str, transport: str
) -> None:
    async with connected(server, related_draft(), transport=transport) as client:
        stream = client.generate(
            PROMPT, method=method, sampling=GREEDY, max_tokens=TOKENS, gamma=2, window=4
        )
        async for _ in stream:
            if len(stream.tokens) % 3 == 0:
                await asyncio.to_thread(lose_every_session, server)
    assert [token.id for token in stream.tokens] == greedy_ids(server.target, PROMPT, TOKENS)
    assert stream.stats.reopened >= 3


@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_restarted_server_goes_on(transport: str) -> None:
    with serving(lambda: toy_target(seconds_per_pass=0.01)) as server:
        async with connected(server, related_draft(), retry=PATIENT, transport=transport) as client:
            text = await own_text(client)
            stream = client.generate(
                PROMPT, method="coupled", seed=9, max_tokens=TOKENS, gamma=2, window=4
            )
            restarted = None
            async for _ in stream:
                if len(stream.tokens) >= 8 and restarted is None:
                    restarted = asyncio.create_task(asyncio.to_thread(server.restart))
            assert restarted is not None
            await restarted
            assert [token.id for token in stream.tokens] == text


async def test_leaving_a_stream_leaves_nothing_behind(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        for count in range(1, 12):
            stream = client.generate(PROMPT, max_tokens=TOKENS, gamma=2, window=8)
            async for _ in stream:
                if len(stream.tokens) >= count:
                    break
            await stream.aclose()
        tasks = {task.get_name() for task in asyncio.all_tasks()}
        assert await own_text(client)
    assert len(asyncio.all_tasks()) <= 2, tasks


class Slow(ToyDraft):
    """Takes its time."""

    def next_logits(self) -> NDArray[np.float32]:
        time.sleep(0.01)
        return super().next_logits()


async def test_a_draft_that_does_not_pay_is_left_and_the_text_stays(server: Serving) -> None:
    """It is slow and seldom right, the target is fast: the server soon decodes alone."""
    draft = Slow.from_table(VOCABULARY, ToyTable.random(77, len(VOCABULARY), order=2))
    async with connected(server, draft) as client:
        stream = client.generate(PROMPT, method="coupled", seed=9, max_tokens=400)
        text = await ids_of(stream)
        alone = await ids_of(
            client.generate(PROMPT, method="autoregressive", seed=9, max_tokens=400)
        )
    assert text == alone
    assert stream.stats.drafted < 200
