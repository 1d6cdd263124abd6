"""When a WebSocket is used, and what happens where it cannot be."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from harness import serving as harness
from harness.serving import PROMPT, Serving, connected, greedy_ids, related_draft, serving, until

from edge_sdk import EdgeClient, Timeouts
from edge_sdk.errors import CosdError, InvalidRequest, ProtocolError, Unauthorized
from edge_sdk.transport import AutoTransport, HttpTransport, WebSocketTransport
from server_app.routes.stream import StreamLimits


async def ids_of(client: EdgeClient, count: int = 12) -> list[int]:
    stream = client.generate(PROMPT, method="greedy", max_tokens=count)
    async for _ in stream:
        pass
    return [token.id for token in stream.tokens]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "without a WebSocket" in r.getMessage()]


async def test_an_httpx_client_of_ones_own(server: Serving) -> None:
    async with httpx.AsyncClient() as http:
        for transport, kind in (
            ("auto", HttpTransport),
            ("http", HttpTransport),
            ("websocket", WebSocketTransport),
        ):
            client = EdgeClient(server.url, http_client=http, transport=transport)  # type: ignore[arg-type]
            assert type(client.transport) is kind
            await client.aclose()
    assert type(EdgeClient(server.url).transport) is AutoTransport


@pytest.mark.parametrize("transport", ["ws", None, 5, ["http"]])
def test_transports_that_are_none(transport: Any) -> None:
    with pytest.raises(InvalidRequest, match="'auto', 'http' or 'websocket'") as caught:
        EdgeClient("http://127.0.0.1:9", transport=transport)
    assert caught.value.field == "transport"


async def test_a_server_that_does_not_offer_it(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = HttpTransport.card

    async def older(self: HttpTransport) -> dict[str, Any]:
        return {name: value for name, value in (await card(self)).items() if name != "transports"}

    monkeypatch.setattr(HttpTransport, "card", older)
    async with connected(server, related_draft()) as client:
        assert await ids_of(client) == greedy_ids(server.target, PROMPT, 12)
        assert isinstance(client.transport, AutoTransport)
        assert not client.transport._socket._dialling
        assert not client.transport._socket._sockets


async def test_a_server_without_websockets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(harness, "UVICORN_OPTIONS", {"ws": "none"})
    with serving() as server:
        async with connected(server, related_draft()) as client:
            for _ in range(3):
                assert await ids_of(client) == greedy_ids(server.target, PROMPT, 12)
                await until(lambda: client.transport._blocked)  # type: ignore[attr-defined]
        assert len(said(caplog)) == 1
        with pytest.raises(ProtocolError, match=r"takes no WebSocket .*transport='http'"):
            async with connected(server, related_draft(), transport="websocket") as client:
                await ids_of(client)


@contextlib.asynccontextmanager
async def middlebox(server: Serving, answer: bytes | None) -> AsyncIterator[str]:
    """Passes HTTP on. An upgrade gets `answer`; None lets it through and swallows what follows."""
    tasks = set()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while data := await reader.read(65536):
                writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        first = await reader.read(65536)
        upgrades = b"upgrade: websocket" in first.lower()
        if upgrades and answer is not None:
            writer.write(answer)
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", server.port)
        back.write(first)
        if upgrades:
            writer.write(await there.readuntil(b"\r\n\r\n"))
            while await reader.read(65536):
                pass
            back.close()
            writer.close()
            return
        await asyncio.gather(pipe(reader, back), pipe(there, writer))

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # type: ignore[arg-type]


ANSWERS = [
    b"HTTP/1.1 403 Forbidden\r\ncontent-length: 5\r\n\r\nproxy",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 302 Found\r\nlocation: ws://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    b"HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n",
    b"SSH-2.0-what\r\n\r\n",
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer[:12].decode())
async def test_a_proxy_that_blocks_upgrades(
    server: Serving, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with middlebox(server, answer) as url:
        async with connected(url, related_draft()) as client:
            for _ in range(2):
                assert await ids_of(client) == greedy_ids(server.target, PROMPT, 12)
                await until(lambda: client.transport._blocked)  # type: ignore[attr-defined]
            assert client.transport.retries == 0
        assert len(said(caplog)) == 1
        with pytest.raises(ProtocolError, match="takes no WebSocket"):
            async with connected(url, related_draft(), transport="websocket") as client:
                await ids_of(client)


async def test_a_proxy_that_lets_upgrades_through_but_no_frames(
    server: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        middlebox(server, None) as url,
        EdgeClient(
            url, draft=related_draft(), cache=None, timeouts=Timeouts(connect=0.15)
        ) as client,
    ):
        for _ in range(3):
            assert await ids_of(client) == greedy_ids(server.target, PROMPT, 12)
            client.transport._not_before = 0.0  # type: ignore[attr-defined]
            await until(lambda: not client.transport._socket._dials)  # type: ignore[attr-defined]
        assert client.transport.retries == 0
        assert client.transport._blocked  # type: ignore[attr-defined]
    assert len(said(caplog)) == 1


async def test_a_socket_that_the_server_closed_for_idleness() -> None:
    with serving() as server:
        server.app.state.stream_limits = StreamLimits(idle=0.1)
        for transport in ("auto", "websocket"):
            async with connected(server, related_draft(), transport=transport) as client:
                stream = client.generate(PROMPT, method="greedy", max_tokens=12, gamma=2)
                async for _ in stream:
                    await asyncio.sleep(0.15)
                assert [t.id for t in stream.tokens] == greedy_ids(server.target, PROMPT, 12)
                assert stream.stats.reopened == 0


# Keys.


@pytest.mark.parametrize("transport", ["http", "websocket", "auto"])
async def test_a_key_from_a_function(transport: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asked = 0

    async def key() -> str:
        nonlocal asked
        asked += 1
        return "sesame-4711"

    with serving(keys=["sesame-4711"]) as server:
        async with connected(server, related_draft(), api_key=key, transport=transport) as client:
            assert await ids_of(client) == greedy_ids(server.target, PROMPT, 12)
        assert asked >= 4
        before = asked
        async with connected(
            server, related_draft(), api_key="sesame-4711", transport=transport
        ) as client:
            await ids_of(client)
    assert asked == before
    # The server runs in this process; its own log is set up by its own command.
    ours = [r.getMessage() for r in caplog.records if not r.name.startswith("uvicorn")]
    assert len(ours) > 5
    assert "sesame" not in "".join(ours)


@pytest.mark.parametrize(
    ("result", "say"),
    [(5, "give a string"), ("", "header"), ("a\nb", "header"), (KeyError("hidden"), "KeyError")],
)
async def test_a_function_that_gives_no_key(server: Serving, result: Any, say: str) -> None:
    async def key() -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    with pytest.raises(InvalidRequest, match=say) as caught:
        async with connected(server, api_key=key):
            pass
    assert caught.value.field == "api_key"
    assert "hidden" not in str(caught.value)


async def test_a_key_that_is_withdrawn() -> None:
    keys = iter(["good"] * 4 + ["bad"] * 99)

    async def key() -> str:
        return next(keys)

    with serving(keys=["good"]) as server:
        async with connected(server, related_draft(), api_key=key, transport="websocket") as client:
            with pytest.raises(Unauthorized):
                await ids_of(client)


async def test_after_closing_nothing_is_asked(server: Serving) -> None:
    for transport in ("http", "websocket", "auto"):
        async with connected(server, related_draft(), transport=transport) as client:
            await ids_of(client)
            await client.transport.aclose()
            await client.transport.aclose()
            for call in (client.transport.card(), client.transport.close_session("0" * 32)):
                with pytest.raises(CosdError, match="client is closed"):
                    await call
