"""How requests and sockets end: cancelled, left, idle, not read."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest
from harness.raw import block
from harness.serving import PROMPT, Serving, greedy_ids, serving, toy_target, until
from harness.sockets import dialled, lives, opened
from websockets.exceptions import ConnectionClosed

from edge_sdk.wire import Generate, encode
from edge_sdk.wire.frames import SUBPROTOCOL, Close, Down, Up, frame
from server_app.app import create_app
from server_app.routes.stream import StreamLimits
from server_app.settings import Settings


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
