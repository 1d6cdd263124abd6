"""Connections that break at every moment: the text is whole, and no character comes twice."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from harness.serving import PROMPT, Serving, connected, related_draft, serving, toy_target, until

from bench.link_proxy import Direction, Fault, Faults, LinkProxy, fault_at, random_faults
from edge_sdk import EdgeClient, Retry, Stream
from edge_sdk.transport import AutoTransport, WebSocketTransport

RETRY = Retry(attempts=6, first=0.005, longest=0.02)
OPTIONS: dict[str, Any] = {"method": "coupled", "seed": 12, "max_tokens": 14, "gamma": 2}


async def read(client: EdgeClient, **changes: Any) -> tuple[Stream, str]:
    stream = client.generate(PROMPT, **OPTIONS | changes)
    pieces = [piece.text async for piece in stream]
    return stream, "".join(pieces)


async def undisturbed(server: Serving, **changes: Any) -> tuple[list[int], str]:
    async with connected(server, related_draft(), transport="http") as client:
        stream, text = await read(client, **changes)
    return [token.id for token in stream.tokens], text


async def disturbed(
    server: Serving, transport: Any, faults: Faults, **changes: Any
) -> tuple[list[int], str, LinkProxy]:
    async with (
        LinkProxy(server.port, faults=faults, stall_seconds=0.05) as proxy,
        connected(
            proxy.url, related_draft(), transport=transport, retry=RETRY, reply=1.0
        ) as client,
    ):
        stream, text = await read(client, **changes)
        assert stream.finish == "length"
        assert text == stream.text
    return [token.id for token in stream.tokens], text, proxy


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.TRUNCATE, Fault.DUPLICATE])
@pytest.mark.parametrize("transport", ["websocket", "auto"])
async def test_a_fault_at_every_message(server: Serving, transport: str, fault: Fault) -> None:
    whole = await undisturbed(server)
    happened = 0
    directions: tuple[Direction, ...] = ("down",) if fault is Fault.DUPLICATE else ("up", "down")
    for direction in directions:
        # Card and byte table, pair, open and upgrade, six rounds or so, the end.
        for number in range(0, 16, 1 if transport == "websocket" else 3):
            faults = fault_at(number, fault, direction=direction)
            *found, proxy = await disturbed(server, transport, faults)
            assert tuple(found) == whole, (direction, number)
            happened += proxy.faults[fault]
    assert happened > (8 if transport == "websocket" else 3) * len(directions)


@pytest.mark.parametrize("transport", ["websocket", "auto", "http"])
async def test_faults_at_random(server: Serving, transport: str) -> None:
    whole = await undisturbed(server)
    total = 0
    for seed in range(6):
        faults = random_faults(seed, cut=0.04, truncate=0.04, stall=0.02, duplicate=0.04)
        *found, proxy = await disturbed(server, transport, faults)
        assert tuple(found) == whole, seed
        total += sum(proxy.faults.values())
    assert total > 6


async def test_a_stream_of_the_server_that_breaks(server: Serving) -> None:
    changes = {"method": "autoregressive", "max_tokens": 40}
    whole = await undisturbed(server, **changes)
    for number in (4, 6, 9, 15):
        faults = fault_at(number, Fault.CUT, direction="down")
        *found, proxy = await disturbed(server, "websocket", faults, **changes)
        assert tuple(found) == whole
        assert proxy.faults[Fault.CUT]


async def test_every_open_connection_is_cut_between_rounds(server: Serving) -> None:
    whole = await undisturbed(server, max_tokens=30)
    async with LinkProxy(server.port) as proxy:
        for transport in ("websocket", "auto"):
            async with connected(
                proxy.url, related_draft(), transport=transport, retry=RETRY
            ) as client:
                stream = client.generate(PROMPT, **OPTIONS | {"max_tokens": 30})
                text = ""
                async for piece in stream:
                    text += piece.text
                    proxy.cut()
            assert ([token.id for token in stream.tokens], text) == whole
            assert stream.stats.reopened == 0


@pytest.mark.parametrize("method", ["coupled", "autoregressive"])
async def test_a_restarted_server(method: str) -> None:
    retry = Retry(attempts=8, first=0.02, longest=0.3)
    with serving() as server:
        whole = await undisturbed(server, method=method, max_tokens=60)
        async with connected(server, related_draft(), transport="websocket", retry=retry) as client:
            stream = client.generate(PROMPT, **OPTIONS | {"method": method, "max_tokens": 60})
            restarted = None
            async for _ in stream:
                if len(stream.tokens) >= 8 and restarted is None:
                    restarted = asyncio.create_task(asyncio.to_thread(server.restart))
                    await asyncio.sleep(0.05)
            assert restarted is not None
            await restarted
        assert ([token.id for token in stream.tokens], stream.text) == whole


async def test_nothing_of_a_text_is_left() -> None:
    with serving() as server:
        sockets = server.app.state.metrics.websocket_connections._value
        async with connected(server, related_draft(), transport="websocket") as client:
            assert isinstance(client.transport, WebSocketTransport)
            for _ in range(3):
                await read(client)
            stream = client.generate(PROMPT, **OPTIONS | {"max_tokens": 3000})
            async for _ in stream:
                break
            assert sockets.get() > 0
            await stream.aclose()
            await until(lambda: server.sessions == 0 and sockets.get() == 0)
            assert not client.transport._sockets
            assert not client.transport._dials


async def test_lost_sessions_leave_no_sockets(server: Serving) -> None:
    whole = await undisturbed(server)
    async with (
        httpx.AsyncClient(base_url=server.url) as other,
        connected(server, related_draft(), transport="websocket") as client,
    ):
        stream = client.generate(PROMPT, **OPTIONS)
        async for _ in stream:
            for _, session_id in list(server.app.state.host._sessions._held):
                await other.delete(f"/v1/sessions/{session_id}")
            assert isinstance(client.transport, WebSocketTransport)
            assert len(client.transport._sockets) <= 1
        assert stream.stats.reopened > 2
    assert ([token.id for token in stream.tokens], stream.text) == whole


async def test_auto_goes_on_over_http_at_once() -> None:
    patient = Retry(attempts=3, first=9.0, longest=9.0)
    with serving(lambda: toy_target(seconds_per_pass=0.1)) as server:
        whole = await undisturbed(server)
        async with (
            LinkProxy(server.port) as proxy,
            connected(proxy.url, related_draft(), transport="auto", retry=patient) as client,
        ):
            assert isinstance(client.transport, AutoTransport)
            sockets = client.transport._socket._sockets
            task = asyncio.create_task(read(client))
            await until(lambda: any(socket._calls for socket in sockets.values()))
            proxy.cut()
            async with asyncio.timeout(8):
                stream, text = await task
            assert ([token.id for token in stream.tokens], text) == whole
            assert stream.stats.retries == client.transport.retries == 1


@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_stream_of_the_server_that_is_asked_for_twice(transport: str) -> None:
    """The second request takes the stream from the first, which the SDK reads."""
    changes = {"method": "autoregressive", "max_tokens": 40}
    with serving(lambda: toy_target(seconds_per_pass=0.004)) as server:
        whole = await undisturbed(server, **changes)
        # Card, byte table, open, and over a socket the upgrade come first.
        for number in (3, 4):
            faults = fault_at(number, Fault.DUPLICATE, direction="up")
            *found, _ = await disturbed(server, transport, faults, **changes)
            assert tuple(found) == whole
