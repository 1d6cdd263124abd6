"""A link that is down for longer than the retries."""

from __future__ import annotations

import asyncio
import logging

import pytest
from harness.serving import (
    PROMPT,
    Serving,
    connected,
    related_draft,
    serving,
    toy_target,
    until,
)

from edge_sdk import EdgeClient, Retry, Stream
from edge_sdk.errors import ConnectionFailed, InvalidRequest

METHODS = ["coupled", "autoregressive"]
TOKENS = 60
RETRY = Retry(attempts=2, first=0.01, longest=0.05)


async def own_text(server: Serving, seed: int) -> list[int]:
    async with connected(server) as client:
        result = await client.complete(
            PROMPT, method="autoregressive", seed=seed, max_tokens=TOKENS
        )
    return [token.id for token in result.tokens]


async def read(stream: Stream) -> list[int]:
    async for _ in stream:
        pass
    return [token.id for token in stream.tokens]


@pytest.mark.parametrize("gamma", ["auto", 3])
@pytest.mark.parametrize("method", METHODS)
async def test_a_text_waits_until_the_link_is_back(
    method: str, gamma: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "edge_sdk.offline")
    told: list[bool] = []
    with serving(lambda: toy_target(seconds_per_pass=0.01)) as server:
        async with EdgeClient(
            server.url, draft=related_draft(), cache=None, retry=RETRY, on_link=told.append
        ) as client:
            stream = client.generate(PROMPT, method=method, gamma=gamma, seed=4, max_tokens=TOKENS)
            reading = asyncio.create_task(read(stream))
            await until(lambda: len(stream.tokens) > 5, 30)
            await asyncio.to_thread(server.stop, hard=True)
            await until(lambda: told == [False], 30)
            await asyncio.sleep(0.3)
            assert not reading.done()
            assert client.outage.down
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(30):
                ids = await reading
            assert told == [False, True]
            assert not client.outage.down
            assert stream.finish == "length"
        assert ids == await own_text(server, 4)
    said = [record.message for record in caplog.records if record.name == "edge_sdk.offline"]
    assert [line.partition(";")[0] for line in said] == ["the link is down", "the link is back"]


@pytest.mark.parametrize("method", METHODS)
async def test_fail_raises_after_the_retries(method: str) -> None:
    told: list[bool] = []
    with serving(lambda: toy_target(seconds_per_pass=0.01)) as server:
        async with connected(
            server, related_draft(), offline="fail", retry=RETRY, on_link=told.append
        ) as client:
            stream = client.generate(PROMPT, method=method, max_tokens=3000)
            await anext(stream)
            await asyncio.to_thread(server.stop, hard=True)
            with pytest.raises(ConnectionFailed, match="is the server running"):
                await read(stream)
    assert told == []


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("by", ["cancel", "close", "leave"])
async def test_waiting_can_be_ended(method: str, by: str) -> None:
    patient = Retry(attempts=1, first=0, longest=60)
    with serving(lambda: toy_target(seconds_per_pass=0.01)) as server:
        async with EdgeClient(
            server.url, draft=related_draft(), cache=None, retry=patient
        ) as client:
            stream = client.generate(PROMPT, method=method, max_tokens=3000)
            reading = asyncio.create_task(read(stream))
            await until(lambda: len(stream.tokens) > 5, 30)
            await asyncio.to_thread(server.stop, hard=True)
            await until(lambda: client.outage.down, 30)
            begin = asyncio.get_running_loop().time()
            if by == "cancel":
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
            elif by == "close":
                await client.aclose()
                with pytest.raises(InvalidRequest, match="closed"):
                    await reading
            else:
                async with asyncio.timeout(0.05):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(asyncio.shield(reading), 0.02)
                reading.cancel()
                await asyncio.wait([reading])
            assert asyncio.get_running_loop().time() - begin < 3


async def test_a_new_text_waits_too_but_a_client_that_never_connected_does_not() -> None:
    with serving() as server:
        async with EdgeClient(server.url, draft=related_draft(), cache=None, retry=RETRY) as client:
            await asyncio.to_thread(server.stop, hard=True)
            asked = asyncio.create_task(client.complete(PROMPT, max_tokens=5))
            await until(lambda: client.outage.down, 30)
            await asyncio.to_thread(server.start)
            assert len((await asked).tokens) == 5
    lost = EdgeClient(server.url, cache=None, retry=RETRY)
    with pytest.raises(ConnectionFailed, match="is the server running"):
        await lost.complete(PROMPT, method="autoregressive")
    await lost.aclose()


async def test_a_callback_that_fails_does_not_end_the_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(up: bool) -> None:
        raise RuntimeError("no screen")

    with serving() as server:
        async with EdgeClient(
            server.url, draft=related_draft(), cache=None, retry=RETRY, on_link=broken
        ) as client:
            await asyncio.to_thread(server.stop, hard=True)
            asked = asyncio.create_task(client.complete(PROMPT, max_tokens=5))
            await until(lambda: client.outage.down, 30)
            await asyncio.to_thread(server.start)
            assert len((await asked).tokens) == 5
    assert sum("on_link failed" in record.message for record in caplog.records) == 2


@pytest.mark.parametrize(
    ("options", "say"),
    [({"offline": "never"}, "'wait', 'fail' or 'draft'"), ({"on_link": 3}, "takes True or False")],
)
def test_wrong_arguments(options: dict[str, object], say: str) -> None:
    with pytest.raises(InvalidRequest, match=say):
        EdgeClient("http://127.0.0.1:9", **options)  # type: ignore[arg-type]
