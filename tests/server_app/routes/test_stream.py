"""The WebSocket of a session: what it answers, what it refuses, and what it outlives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from harness.raw import KEY, OTHER_KEY, block, opening
from harness.serving import PROMPT, Serving, greedy_ids, serving, toy_target, until
from harness.sockets import dialled, opened
from websockets.exceptions import ConnectionClosed, InvalidStatus

from edge_sdk.wire import (
    Ask,
    Extend,
    Extended,
    Generate,
    Generated,
    Truncate,
    Verdict,
    decode,
    encode,
)
from edge_sdk.wire.frames import SUBPROTOCOL, Close, Down, Up, frame, read_reply
from edge_sdk.wire.limits import MAX_LAWS_BODY, MAX_ROUND_BODY, MAX_WINDOW
from server_app.app import create_app
from server_app.boot import Boot
from server_app.routes.stream import StreamLimits
from server_app.settings import Settings


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def locked() -> Iterator[Serving]:
    with serving(keys=[KEY, OTHER_KEY]) as running:
        yield running


async def lives(server: Serving) -> None:
    """The server still answers, over both transports."""
    async with httpx.AsyncClient(base_url=server.url) as client:
        assert (await client.get("/health")).status_code == 200
    session = await opened(server, method="greedy")
    async with dialled(server, session) as line:
        await line.send(Up.VERIFY, 0, block(q=None))
        assert (await line.verdict(0)).settled == greedy_ids(server.target, PROMPT, 1)[0]


async def test_every_message(server: Serving) -> None:
    text = greedy_ids(server.target, PROMPT, 4)
    session = await opened(server, method="greedy")
    async with dialled(server, session) as line:
        for sequence in range(4):
            await line.send(Up.VERIFY, 7, block(sequence=sequence, base=sequence, q=None))
            assert (await line.verdict(7)).settled == text[sequence]
        await line.send(Up.ASK, 31, Ask(4, 1))
        assert (await line.failure(31)).code == "base_mismatch"
        await line.send(Up.TRUNCATE, 1, Truncate(4, 2))
        assert (await line.frame())[:2] == (Down.REPLY, 1)
        await line.send(Up.VERIFY, 2, block(sequence=5, base=2, q=None))
        assert (await line.verdict(2)).settled == text[2]
        generation = opening(method="greedy", seed=9).generation
        await line.send(Up.EXTEND, 3, Extend(6, opening().prompt, generation))
        kind, slot, data = await line.frame()
        assert (kind, slot) == (Down.REPLY, 3)
        assert decode(Extended, read_reply(data)[0], limit=99).prompt_tokens > 0


async def test_a_stream_of_tokens_ends(server: Serving) -> None:
    session = await opened(server, method="autoregressive", max_tokens=5)
    async with dialled(server, session) as line:
        await line.send(Up.GENERATE, 4, Generate(0))
        ids = []
        while True:
            kind, slot, data = await line.frame()
            assert slot == 4
            if kind == Down.END:
                break
            assert kind == Down.TOKEN
            ids.append(decode(Generated, data[1:], limit=99).token)
        assert len(ids) == 5
        await line.send(Up.GENERATE, 4, Generate(9))
        assert (await line.failure(4)).code == "base_mismatch"


async def test_a_session_goes_on_over_another_socket_and_over_http(server: Serving) -> None:
    text = greedy_ids(server.target, PROMPT, 3)
    session = await opened(server, method="greedy")
    async with dialled(server, session) as line:
        await line.send(Up.VERIFY, 0, block(q=None))
        assert (await line.verdict(0)).settled == text[0]
    async with httpx.AsyncClient(base_url=server.url) as client:
        path = f"/v1/sessions/{session}/verify"
        # The first once more: its reply is kept, however it is asked for.
        for number in (0, 1):
            message = block(sequence=number, base=number, q=None)
            reply = await client.post(path, content=encode(message))
            assert reply.status_code == 200
    async with dialled(server, session) as line:
        await line.send(Up.VERIFY, 0, block(sequence=2, base=2, q=None))
        assert (await line.verdict(0)).settled == text[2]


async def test_requests_in_any_order(server: Serving) -> None:
    session = await opened(server, method="greedy")
    text = greedy_ids(server.target, PROMPT, MAX_WINDOW)
    async with dialled(server, session) as line:
        numbers = list(range(MAX_WINDOW))
        random.Random(1).shuffle(numbers)
        for number in numbers:
            await line.send(Up.VERIFY, number, block(sequence=number, base=number, q=None))
        found = {}
        for _ in numbers:
            kind, slot, data = await line.frame()
            assert kind == Down.REPLY
            found[slot] = decode(Verdict, read_reply(data)[0], limit=1 << 20).settled
    assert [found[number] for number in sorted(found)] == text


# Who may come in.


@pytest.mark.parametrize(
    ("key", "headers", "options", "status", "code"),
    [
        (None, {}, {}, 401, "unauthorized"),
        ("wrong", {}, {}, 401, "unauthorized"),
        (KEY, {"origin": "https://evil.example"}, {}, 401, "unauthorized"),
        (KEY, {}, {"subprotocols": None}, 422, "invalid_request"),
        (KEY, {}, {"subprotocols": ["cosd.2"]}, 422, "invalid_request"),
    ],
)
async def test_upgrades_that_are_refused(
    locked: Serving,
    key: str | None,
    headers: dict[str, str],
    options: dict[str, Any],
    status: int,
    code: str,
) -> None:
    given = headers | ({"authorization": f"Bearer {key}"} if key else {})
    with pytest.raises(InvalidStatus) as caught:
        async with dialled(locked, "0" * 32, additional_headers=given, **options):
            pass
    assert caught.value.response.status_code == status
    body = json.loads(bytes(caught.value.response.body or b""))
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    if status == 401:
        assert caught.value.response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("session", ["x", "0" * 33, "A" * 32])
async def test_session_ids_that_are_none(server: Serving, session: str) -> None:
    with pytest.raises(InvalidStatus) as caught:
        async with dialled(server, session):
            pass
    assert caught.value.response.status_code == 422


async def test_a_session_of_another_key_is_not_there(locked: Serving) -> None:
    session = await opened(locked, key=KEY, method="greedy")
    async with dialled(locked, session, key=OTHER_KEY) as line:
        for slot, (kind, message) in enumerate(
            [(Up.VERIFY, block(q=None)), (Up.TRUNCATE, Truncate(0, 0)), (Up.GENERATE, Generate(0))]
        ):
            await line.send(kind, slot, message)
            assert (await line.failure(slot)).code == "session_lost"
    async with dialled(locked, session, key=KEY) as line:
        await line.send(Up.VERIFY, 0, block(q=None))
        assert (await line.verdict(0)).accepted == 0


async def test_nothing_is_compressed(server: Serving) -> None:
    session = await opened(server, method="greedy")
    async with dialled(server, session, compression="deflate") as line:
        assert line.connection.protocol.extensions == []


# Frames that cannot be.


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("text", Close.TEXT),
        (b"", Close.MALFORMED),
        (bytes((6 << 5,)), Close.MALFORMED),
        (bytes((7 << 5 | 3,)) + b"body", Close.MALFORMED),
        (bytes(MAX_LAWS_BODY + 2), 1009),
    ],
)
async def test_frames_that_close_the_socket(server: Serving, data: Any, code: int) -> None:
    session = await opened(server, method="greedy")
    async with dialled(server, session) as line:
        with contextlib.suppress(ConnectionClosed):
            await line.connection.send(data)
        with pytest.raises(ConnectionClosed) as caught:
            await line.frame()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == code
    await lives(server)


async def test_a_slot_in_use_closes_the_socket(server: Serving) -> None:
    session = await opened(server, method="greedy")
    async with dialled(server, session) as line:
        await line.send(Up.VERIFY, 5, block(sequence=3, q=None))
        await line.send(Up.VERIFY, 5, block(sequence=4, q=None))
        with pytest.raises(ConnectionClosed) as caught:
            await line.frame()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == Close.MALFORMED


@pytest.mark.parametrize(
    ("kind", "body", "code", "field"),
    [
        (Up.VERIFY, bytes(MAX_ROUND_BODY + 1), "message_too_large", None),
        (Up.VERIFY, b"\xc1", "malformed_message", None),
        (Up.VERIFY, b"\x92\x00\xa1x", "malformed_message", "Verify.base"),
        (Up.ASK, b"\x91\x00", "malformed_message", "Ask.block"),
        (Up.TRUNCATE, b"", "malformed_message", None),
        (Up.EXTEND, b"\x91" * 500, "malformed_message", None),
        (Up.GENERATE, b"\x90" * 9, "malformed_message", None),
        (Up.GENERATE, encode(Generate(9)), "base_mismatch", "base"),
        (Up.VERIFY, encode(block(sequence=99, q=None)), "sequence_gap", "sequence"),
    ],
)
async def test_bodies_that_are_refused(
    server: Serving, kind: Up, body: bytes, code: str, field: str | None
) -> None:
    session = await opened(server, method="greedy")
    async with dialled(server, session) as line:
        await line.send(kind, 9, body)
        failure = await line.failure(9)
        assert (failure.code, failure.field) == (code, field)
        assert failure.message
        await line.send(Up.VERIFY, 9, block(q=None))
        assert (await line.verdict(9)).accepted == 0


async def test_garbage(server: Serving) -> None:
    """Random frames end in replies, typed errors or a typed close."""
    coins = random.Random(3)
    codes = set()
    session = await opened(server, method="greedy")
    for _ in range(60):
        async with dialled(server, session) as line:
            with contextlib.suppress(ConnectionClosed):
                for _ in range(8):
                    await line.connection.send(coins.randbytes(coins.choice((0, 1, 2, 5, 40, 400))))
                await line.connection.send(b"")
            with contextlib.suppress(ConnectionClosed):
                while True:
                    kind, _, data = await line.frame()
                    assert kind in (Down.REPLY, Down.ERROR, Down.END)
                    assert b"server_fault" not in data
            codes.add(line.connection.close_code)
    assert codes == {Close.MALFORMED}
    await lives(server)


async def test_frames_that_break_the_protocol_beneath(server: Serving) -> None:
    """Unmasked, reserved bits, half frames: the library refuses; the server lives."""
    upgrade = (
        f"GET /v1/sessions/{'0' * 32}/stream HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\n"
        f"connection: upgrade\r\nsec-websocket-version: 13\r\n"
        f"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: {SUBPROTOCOL}"
        f"\r\n\r\n"
    ).encode()
    for junk in (b"\x82\x01\x00", b"\xf2\x80\0\0\0\0", b"\x82\xfe\xff", b"\xff" * 400, b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(upgrade + junk)
        assert b" 101 " in await reader.readline()
        writer.write_eof()
        async with asyncio.timeout(5):
            await reader.read()
        writer.close()
    await lives(server)


# Ends.


async def test_a_cancelled_request_ends(server: Serving) -> None:
    session = await opened(server, method="greedy")
    async with dialled(server, session) as line:
        # It waits for those before it.
        await line.send(Up.VERIFY, 2, block(sequence=5, q=None))
        await line.send(Up.CANCEL, 2)
        await line.send(Up.CANCEL, 3)
        async with asyncio.timeout(0.5):
            assert await line.frame() == (Down.END, 2, frame(Down.END, 2))
        await line.send(Up.VERIFY, 2, block(q=None))
        assert (await line.verdict(2)).accepted == 0


async def test_a_cancelled_stream_ends(server: Serving) -> None:
    session = await opened(server, method="autoregressive", max_tokens=3000)
    async with dialled(server, session) as line:
        await line.send(Up.GENERATE, 0, Generate(0))
        assert (await line.frame())[0] == Down.TOKEN
        await line.send(Up.CANCEL, 0)
        count = 0
        while (await line.frame())[0] == Down.TOKEN:
            count += 1
        assert count < 2900


def busy(server: Serving) -> int:
    return sum(held.busy for held in server.app.state.host._sessions._held.values())


async def test_what_is_in_flight_ends_with_its_socket() -> None:
    with serving(lambda: toy_target(seconds_per_pass=0.2)) as server:
        session = await opened(server, method="greedy")
        async with dialled(server, session) as line:
            for number in range(6):
                await line.send(Up.VERIFY, number, block(sequence=number, base=number, q=None))
            await until(lambda: busy(server) == 6)
            passes = server.target.passes
        await until(lambda: busy(server) == 0, 3)
        await asyncio.sleep(0.5)
        # What was in the model is finished; what had not begun costs nothing.
        assert server.target.passes <= passes + 2
        async with dialled(server, session) as line:
            for number in range(3):
                await line.send(Up.VERIFY, 1, block(sequence=number, base=number, q=None))
                expected = greedy_ids(server.target, PROMPT, number + 1)[number]
                assert (await line.verdict(1)).settled == expected


async def test_an_idle_socket_is_closed() -> None:
    with serving() as server:
        server.app.state.stream_limits = StreamLimits(idle=0.2)
        session = await opened(server, method="greedy")
        async with dialled(server, session) as line:
            await line.send(Up.VERIFY, 0, block(q=None))
            await line.verdict(0)
            # A request that takes longer does not count as idle.
            await line.send(Up.VERIFY, 0, block(sequence=9, q=None))
            assert (await line.failure(0)).code == "sequence_gap"
            with pytest.raises(ConnectionClosed) as caught:
                async with asyncio.timeout(2):
                    await line.frame()
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == Close.IDLE


async def test_a_reader_that_does_not_read_is_closed() -> None:
    """The network's side stands still after the upgrade; what was asked meanwhile ends."""
    target = toy_target()
    app = create_app(target, Settings(target="toy:1"))
    app.state.stream_limits = StreamLimits(slow=0.2)
    sent: list[str] = []
    frames = [frame(Up.VERIFY, slot, encode(block(sequence=9, q=None))) for slot in range(3)]
    frames.append(frame(Up.TRUNCATE, 3, b""))

    async def receive() -> Any:
        if not sent:
            return {"type": "websocket.connect"}
        if frames:
            return {"type": "websocket.receive", "bytes": frames.pop()}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if message["type"] != "websocket.accept":
            await asyncio.Event().wait()

    scope: dict[str, Any] = {
        "type": "websocket",
        "path": f"/v1/sessions/{'0' * 32}/stream",
        "headers": [],
        "subprotocols": [SUBPROTOCOL],
        "query_string": b"",
    }
    async with app.router.lifespan_context(app), asyncio.timeout(5):
        await app(scope, receive, send)
    assert sent == ["websocket.accept", "websocket.send", "websocket.close"]


async def test_many_sockets_come_and_go(server: Serving) -> None:
    for _ in range(50):
        async with dialled(server, secrets.token_hex(16)) as line:
            await line.send(Up.VERIFY, 0, block(q=None))
    await lives(server)


async def test_an_upgrade_while_the_model_loads_is_told_to_come_again() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    boot = Boot(lambda tell: FastAPI(), on_ready=lambda: None, on_failure=lambda error: None)
    extensions: dict[str, Any] = {"websocket.http.response": {}}
    scope = {"type": "websocket", "path": "/x", "extensions": extensions}
    await boot(scope, receive, send)
    assert (sent[0]["type"], sent[0]["status"]) == ("websocket.http.response.start", 503)
    assert json.loads(sent[1]["body"])["error"]["code"] == "server_unavailable"
