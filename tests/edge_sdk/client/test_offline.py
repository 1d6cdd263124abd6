"""A link that is down for longer than the retries."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest
from harness.serving import (
    GREEDY,
    PROMPT,
    TABLE,
    VOCABULARY,
    Serving,
    connected,
    greedy_ids,
    ids_of,
    related_draft,
    serving,
    toy_target,
    until,
)

from edge_sdk import EdgeClient, Origin, Piece, Retry
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.errors import ConnectionFailed, InvalidRequest, ServerAway
from edge_sdk.offline import OfflinePolicy

METHODS = ["coupled", "autoregressive"]
TOKENS = 60
LONG = 150
RETRY = Retry(attempts=2, first=0.01, longest=0.05)


async def own_text(server: Serving, seed: int, count: int = TOKENS) -> list[int]:
    async with connected(server) as client:
        result = await client.complete(PROMPT, method="autoregressive", seed=seed, max_tokens=count)
    return [token.id for token in result.tokens]


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
            reading = asyncio.create_task(ids_of(stream))
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


@contextlib.asynccontextmanager
async def loading(port: int) -> AsyncIterator[list[str]]:
    """A server whose model is not there yet; gives the requests that it was asked."""
    asked: list[str] = []
    body = b'{"error": {"code": "server_away", "message": "the model is still loading"}}'

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b" ")[1].decode())
        writer.write(
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(refuse, "127.0.0.1", port)
    try:
        yield asked
    finally:
        listener.close()


@pytest.mark.parametrize("offline", ["wait", "draft"])
@pytest.mark.parametrize("method", METHODS)
async def test_a_server_that_loads_is_waited_for_like_the_link(
    method: str, offline: OfflinePolicy
) -> None:
    with serving(lambda: toy_target(seconds_per_pass=0.01)) as server:
        async with connected(server, related_draft(), retry=RETRY, offline=offline) as client:
            stream = client.generate(PROMPT, method=method, seed=4, max_tokens=TOKENS)
            reading = asyncio.create_task(ids_of(stream))
            await until(lambda: len(stream.tokens) > 5, 30)
            await asyncio.to_thread(server.stop, hard=True)
            async with loading(server.port) as asked:
                await until(lambda: len(asked) > 4 * RETRY.attempts, 30)
                assert not reading.done()
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(30):
                ids = await reading
        assert ids == await own_text(server, 4)


async def test_a_server_that_loads_ends_a_text_that_must_not_wait() -> None:
    with serving(lambda: toy_target(seconds_per_pass=0.01)) as server:
        async with connected(server, related_draft(), retry=RETRY, offline="fail") as client:
            stream = client.generate(PROMPT, max_tokens=3000)
            await anext(stream)
            await asyncio.to_thread(server.stop, hard=True)
            async with loading(server.port):
                with pytest.raises(ServerAway, match="still loading"):
                    await ids_of(stream)


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
                await ids_of(stream)
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
            reading = asyncio.create_task(ids_of(stream))
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


@pytest.mark.parametrize(
    ("method", "gamma", "window", "transport"),
    [
        ("coupled", 3, None, "http"),
        ("coupled", 2, 4, "websocket"),
        ("coupled", "auto", None, "websocket"),
        ("greedy", 3, None, "websocket"),
        ("hybrid", 2, 4, "http"),
        ("upload", "auto", None, "http"),
    ],
)
async def test_the_draft_goes_on_alone_and_is_corrected(
    method: str, gamma: int, window: int | None, transport: str
) -> None:
    told: list[bool] = []
    with serving(lambda: toy_target(seconds_per_pass=0.02)) as server:
        async with EdgeClient(
            server.url,
            draft=related_draft(),
            cache=None,
            retry=RETRY,
            on_link=told.append,
            offline="draft",
            transport=transport,  # type: ignore[arg-type]
        ) as client:
            stream = client.generate(
                PROMPT,
                method=method,
                sampling=None if method in ("coupled", "greedy") else GREEDY,
                gamma=gamma,  # type: ignore[arg-type]
                window=window,
                seed=4,
                max_tokens=LONG,
            )
            pieces: list[Piece] = []
            shown = ""

            async def read_on() -> None:
                nonlocal shown
                async for piece in stream:
                    pieces.append(piece)
                    shown = shown[: len(shown) - piece.retracted] + piece.text
                    assert shown == stream.text
                    assert sum(len(piece.tokens) for piece in pieces) == len(stream.tokens)
                    unverified = b"".join(token.data for token in stream.unverified)
                    certain = b"".join(token.data for token in stream.tokens)
                    decoder = codecs.getincrementaldecoder("utf-8")("replace")
                    known = decoder.decode(certain + unverified)
                    assert shown == known or stream.finish is not None
                    assert all(token.origin == Origin.UNVERIFIED for token in stream.unverified)

            reading = asyncio.create_task(read_on())
            await until(lambda: len(stream.tokens) > 5, 30)
            await asyncio.to_thread(server.stop, hard=True)
            await until(lambda: reading.done() or client.outage.down, 30)
            await until(
                lambda: reading.done() or len(stream.tokens) + len(stream.unverified) == LONG,
                30,
            )
            assert not reading.done(), reading.result()
            assert not pieces[-1].verified
            before = stream.text
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(30):
                await reading
            # Of several blocks in flight some may still be answered after one was not.
            assert told == [False, True] * (len(told) // 2)
            assert told
            assert stream.finish == "length"
            assert not stream.unverified
            assert pieces[-1].verified
            assert sum(piece.retracted for piece in pieces) > 0
            assert stream.text != before
        expected = (
            await own_text(server, 4, LONG)
            if method == "coupled"
            else greedy_ids(server.target, PROMPT, LONG)
        )
        assert [token.id for token in stream.tokens] == expected


async def test_what_was_drafted_alone_stands_if_the_server_agrees() -> None:
    with serving(lambda: toy_target(seconds_per_pass=0.02)) as server:
        agreeing = ToyDraft.from_table(VOCABULARY, TABLE)
        async with EdgeClient(
            server.url, draft=agreeing, cache=None, retry=RETRY, offline="draft"
        ) as client:
            stream = client.generate(PROMPT, method="greedy", gamma=3, max_tokens=TOKENS)
            asked = asyncio.create_task(ids_of(stream))
            await until(lambda: len(stream.tokens) > 5, 30)
            await asyncio.to_thread(server.stop, hard=True)
            await until(lambda: len(stream.tokens) + len(stream.unverified) == TOKENS, 30)
            whole, drafted = stream.text, stream.stats.drafted
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(30):
                ids = await asked
        assert ids == greedy_ids(server.target, PROMPT, TOKENS)
        assert stream.text == whole
        # Nothing was drafted twice but for what the server settled itself.
        assert stream.stats.drafted - drafted <= TOKENS
        assert stream.stats.acceptance == 1
