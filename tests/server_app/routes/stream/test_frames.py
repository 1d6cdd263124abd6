"""Frames that cannot be: what is refused, and what closes the socket."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest
from harness.raw import block
from harness.serving import Serving
from harness.sockets import dialled, lives, opened
from websockets.exceptions import ConnectionClosed

from edge_sdk.wire import Generate, encode
from edge_sdk.wire.frames import SUBPROTOCOL, Close, Down, Up
from edge_sdk.wire.limits import MAX_LAWS_BODY, MAX_ROUND_BODY


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
