"""Servers that answer nonsense, late or never over a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from edge_sdk import Retry, Timeouts
from edge_sdk.errors import (
    ConnectionFailed,
    CosdError,
    MessageTooLarge,
    ProtocolError,
    RateLimited,
    ServerFault,
    ServerUnavailable,
    TimedOut,
)
from edge_sdk.transport import HttpTransport, WebSocketTransport
from edge_sdk.transport.dial import dial
from edge_sdk.transport.socket import Socket
from edge_sdk.wire import Generate, Generated, Truncate, Verdict, Verify, encode
from edge_sdk.wire.frames import SLOTS, SUBPROTOCOL, Close, Down, Up, failure, frame, reply

SESSION = "0" * 32
VERDICT = encode(Verdict(0, 0, 1))

Answer = Callable[[ServerConnection, bytes], Awaitable[None]]


class Fake:
    """What a server of a test's own got."""

    def __init__(self) -> None:
        self.connections = 0
        self.frames: list[bytes] = []
        self.port = 0


@contextlib.asynccontextmanager
async def faked(
    answer: Answer, *, attempts: int = 1, reply: float = 5.0, setup: float = 5.0
) -> AsyncIterator[tuple[WebSocketTransport, Fake]]:
    """A transport to a server whose every frame `answer` answers."""
    fake = Fake()

    async def handle(connection: ServerConnection) -> None:
        fake.connections += 1
        with contextlib.suppress(ConnectionClosed):
            async for data in connection:
                assert isinstance(data, bytes)
                fake.frames.append(data)
                await answer(connection, data)

    async with serve(
        handle, "127.0.0.1", 0, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None
    ) as server:
        fake.port = next(iter(server.sockets)).getsockname()[1]
        transport = WebSocketTransport(
            HttpTransport(
                f"http://127.0.0.1:{fake.port}",
                retry=Retry(attempts=attempts, first=0.01, longest=0.01),
                timeouts=Timeouts(reply=reply, setup=setup),
            )
        )
        try:
            yield transport, fake
        finally:
            await transport.aclose()


def sends(*frames: bytes | str) -> Answer:
    async def answer(connection: ServerConnection, data: bytes) -> None:
        for item in frames:
            await connection.send(item)

    return answer


async def silent(connection: ServerConnection, data: bytes) -> None:
    pass


def slot(data: bytes) -> int:
    return data[0] & 31


async def right(connection: ServerConnection, data: bytes) -> None:
    if data[0] >> 5 == Up.CANCEL:
        await connection.send(frame(Down.END, slot(data)))
    else:
        await connection.send(reply(slot(data), VERDICT, 0.25))


FIRST = SLOTS - 1  # the slot that a socket takes first


@pytest.mark.parametrize(
    ("answer", "say"),
    [
        (sends("text"), "text frame"),
        (sends(b""), "empty"),
        (sends(reply(FIRST - 1, VERDICT, 0)), "in which nothing was asked"),
        (sends(frame(Down.REPLY, FIRST, b"\x00")), "less than its head"),
        (sends(frame(Down.REPLY, FIRST, b"\x00\x7e" + VERDICT)), "no time"),
        (sends(frame(Down.REPLY, FIRST, b"\x00\xbc" + VERDICT)), "no time"),
        (sends(frame(Down.TOKEN, FIRST, b"")), "frame of kind 2"),
        (sends(frame(Down.END, FIRST)), "frame of kind 3"),
        (sends(bytes((7 << 5 | FIRST,))), "frame of kind 7"),
        (sends(frame(Down.ERROR, FIRST, b"\xc1")), "Failure"),
        (sends(reply(FIRST, b"\xc1", 0)), "cannot be read"),
        (sends(reply(FIRST, b"", 0)), "cannot be read"),
        (sends(bytes((FIRST,)) + bytes((1 << 24) + 3)), "over the limit"),
    ],
)
async def test_impossible_replies(answer: Answer, say: str) -> None:
    async with faked(answer, attempts=3) as (transport, fake):
        with pytest.raises(ProtocolError, match=say):
            await transport.verify(SESSION, Verify(0, 0))
        # Trying again would not help.
        assert len(fake.frames) == 1


async def test_a_reply_that_is_too_long_for_its_kind() -> None:
    async with faked(sends(reply(FIRST, bytes(1 << 21), 0))) as (transport, _):
        with pytest.raises(ProtocolError, match="over the limit of 1048576"):
            await transport.truncate(SESSION, Truncate(0, 0))


@pytest.mark.parametrize(
    ("code", "kind", "tries"),
    [
        (1009, MessageTooLarge, 1),
        (1002, ProtocolError, 1),
        (Close.TEXT, ProtocolError, 1),
        (Close.MALFORMED, ProtocolError, 1),
        (Close.IDLE, ConnectionFailed, 3),
        (Close.SLOW, ConnectionFailed, 3),
        (1001, ConnectionFailed, 3),
        (1012, ConnectionFailed, 3),
        (1000, ConnectionFailed, 3),
    ],
)
async def test_a_server_that_closes(code: int, kind: type[CosdError], tries: int) -> None:
    async def closing(connection: ServerConnection, data: bytes) -> None:
        await connection.close(code, "because")

    async with faked(closing, attempts=3) as (transport, fake):
        with pytest.raises(kind, match=f"{int(code)} because"):
            await transport.verify(SESSION, Verify(0, 0))
        assert fake.connections == tries
        assert fake.frames == [fake.frames[0]] * tries


async def test_errors_have_their_class_and_all_they_say() -> None:
    error = ServerFault("say", field="f", retry_after=3.0)
    async with faked(sends(failure(FIRST, error))) as (transport, _):
        with pytest.raises(ServerFault, match="say") as caught:
            await transport.verify(SESSION, Verify(0, 0))
    assert (caught.value.field, caught.value.retry_after) == ("f", 3.0)


@pytest.mark.parametrize("kind", [RateLimited, ServerUnavailable])
async def test_retry_after_is_kept(kind: type[CosdError]) -> None:
    async def twice(connection: ServerConnection, data: bytes) -> None:
        first = len(fake.frames) == 1
        await (sends(failure(slot(data), kind("wait", retry_after=0.3))) if first else right)(
            connection, data
        )

    async with faked(twice, attempts=2) as (transport, fake):
        begin = time.monotonic()
        verdict, exchange = await transport.verify(SESSION, Verify(0, 0))
        assert time.monotonic() - begin >= 0.3
        assert verdict.settled == 1
        assert exchange.server_seconds == 0.25
        assert transport.retries == 1
        assert fake.connections == 1


async def test_a_server_that_asks_for_too_long_is_not_waited_for() -> None:
    error = RateLimited("wait", retry_after=61.0)
    async with faked(sends(failure(FIRST, error)), attempts=3) as (transport, _):
        with pytest.raises(RateLimited):
            async with asyncio.timeout(5):
                await transport.verify(SESSION, Verify(0, 0))


async def test_silence_ends_and_every_try_has_a_connection_of_its_own() -> None:
    async with faked(silent, attempts=3, reply=0.1, setup=0.1) as (transport, fake):
        for call in (
            lambda: transport.verify(SESSION, Verify(0, 0)),
            lambda: transport.truncate(SESSION, Truncate(0, 0)),
        ):
            before = fake.connections
            with pytest.raises(TimedOut, match=r"did not answer /v1/.* within 0.1 s"):
                await call()
            assert fake.connections - before >= 2


async def test_a_stream_that_falls_silent() -> None:
    token = frame(Down.TOKEN, FIRST, encode(Generated(3)))
    async with faked(sends(token, token), reply=0.1) as (transport, _):
        tokens = transport.generate(SESSION, Generate(0))
        assert [(await anext(tokens))[0].token for _ in range(2)] == [3, 3]
        with pytest.raises(TimedOut, match="no token for"):
            await anext(tokens)


async def test_a_stream_that_nobody_reads_makes_the_server_wait() -> None:
    written = 0

    async def pouring(connection: ServerConnection, data: bytes) -> None:
        nonlocal written
        if data[0] >> 5 != Up.GENERATE:
            await right(connection, data)
            return
        body = encode(Generated(3, 0, None, "x" * 8000))
        while written < 8000:
            await connection.send(frame(Down.TOKEN, slot(data), body))
            written += 1

    async with faked(pouring) as (transport, _):
        tokens = transport.generate(SESSION, Generate(0))
        await anext(tokens)
        for _ in range(100):
            before = written
            await asyncio.sleep(0.05)
            if written == before:
                break
        assert 1024 < written < 6000
        # Whoever leaves it does not stand in the way of the others.
        await tokens.aclose()
        assert (await transport.verify(SESSION, Verify(0, 0)))[0].settled == 1
        assert written == 8000


async def test_a_request_that_is_given_up_frees_its_slot() -> None:
    async def lazy(connection: ServerConnection, data: bytes) -> None:
        if data[0] >> 5 == Up.CANCEL or len(fake.frames) > 3 * SLOTS:
            await right(connection, data)

    async with faked(lazy) as (transport, fake):
        for _ in range(2):
            tasks = [
                asyncio.create_task(transport.verify(SESSION, Verify(n, 0))) for n in range(SLOTS)
            ]
            await asyncio.sleep(0.2)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        verdict, _ = await transport.verify(SESSION, Verify(0, 0))
        assert verdict.settled == 1
        assert fake.connections == 1
        cancelled = [data for data in fake.frames if data[0] >> 5 == Up.CANCEL]
        assert sorted(slot(data) for data in cancelled) == sorted([*range(SLOTS)] * 2)


async def test_more_requests_than_slots_wait_for_one() -> None:
    held: list[int] = []

    async def window(connection: ServerConnection, data: bytes) -> None:
        held.append(slot(data))
        if len(held) == SLOTS:
            for number in held:
                await connection.send(reply(number, VERDICT, 0))
            held.clear()

    async with faked(window) as (transport, _):
        calls = (transport.verify(SESSION, Verify(n, 0)) for n in range(3 * SLOTS))
        assert len(await asyncio.gather(*calls)) == 3 * SLOTS


async def test_those_who_wait_for_a_slot_are_told_that_the_socket_broke() -> None:
    async def late(connection: ServerConnection, data: bytes) -> None:
        if slot(data) == 0:
            await connection.close(1012)

    async with faked(late) as (transport, _):
        calls = (transport.verify(SESSION, Verify(n, 0)) for n in range(2 * SLOTS))
        async with asyncio.timeout(5):
            results: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, ConnectionFailed) for result in results)


async def test_an_idle_socket_leaves_first() -> None:
    async with faked(right) as (transport, _):
        http = transport._http
        connection = await dial(http.base_url, "/", keys=http.keys, tls=http.tls, seconds=2)
        gone: list[Socket] = []
        socket = Socket(
            connection, base_url=http.base_url, path="/", on_closed=gone.append, idle=0.2
        )
        for _ in range(4):
            await asyncio.sleep(0.1)
            body, seconds = await socket.request(Up.VERIFY, b"", limit=99)
            assert (body, seconds) == (VERDICT, 0.25)
        assert socket.open
        await asyncio.sleep(0.4)
        assert not socket.open
        assert gone == [socket]
        assert connection.close_code == 1000


async def test_closing_in_flight() -> None:
    async with faked(silent) as (transport, _):
        task = asyncio.create_task(transport.verify(SESSION, Verify(0, 0)))
        await asyncio.sleep(0.1)
        await transport.aclose()
        with pytest.raises(CosdError, match="closed"):
            await task


async def test_no_server() -> None:
    async with faked(silent, attempts=2) as (transport, fake):
        port = fake.port
    transport = WebSocketTransport(
        HttpTransport(f"http://127.0.0.1:{port}", retry=Retry(attempts=2, first=0.01))
    )
    with pytest.raises(ConnectionFailed, match="is the server running"):
        await transport.verify(SESSION, Verify(0, 0))
    assert transport.retries == 1
    await transport.aclose()
