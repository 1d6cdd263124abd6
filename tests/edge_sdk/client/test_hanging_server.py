"""Servers that accept and never come to an end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator

import httpx
import pytest
from harness.serving import Serving, related_draft

from edge_sdk import EdgeClient, Retry, Timeouts
from edge_sdk.errors import CosdError, ModelFolderInvalid, ProtocolError, RateLimited, TimedOut
from edge_sdk.transport import HttpTransport
from edge_sdk.wire import Ask, Verify

RETRY = Retry(attempts=5, first=0.01, longest=0.01)


@contextlib.asynccontextmanager
async def hanging(drips: bool) -> AsyncIterator[str]:
    over = asyncio.Event()
    connections: list[asyncio.Task[None] | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        with contextlib.suppress(OSError), contextlib.closing(writer):
            if drips:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
            while not over.is_set():
                if drips:
                    writer.write(b" ")
                    await writer.drain()
                await asyncio.sleep(0.02)

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        over.set()
        await asyncio.gather(*(task for task in connections if task is not None))


@pytest.mark.parametrize("drips", [False, True])
async def test_setting_up_has_a_deadline(drips: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with hanging(drips) as url:
        timeouts = Timeouts(reply=9, setup=0.2)
        transport = HttpTransport(url, timeouts=timeouts, retry=RETRY)
        for call in (
            lambda: transport.card(),
            lambda: transport.vocabulary("0" * 64),
            lambda: transport.close_session("x"),
        ):
            begin = time.monotonic()
            with pytest.raises(TimedOut, match=r"did not answer /v1/.* within 0.2 s"):
                await call()
            assert 0.4 <= time.monotonic() - begin < 0.9
        assert transport.retries == 3
        assert len([r for r in caplog.records if "sending again" in r.message]) == 3
        await transport.aclose()


@pytest.mark.parametrize("drips", [False, True])
async def test_a_round_has_a_deadline(drips: bool) -> None:
    async with hanging(drips) as url:
        timeouts = Timeouts(reply=0.15, setup=9)
        transport = HttpTransport(url, timeouts=timeouts, retry=Retry(attempts=2, first=0.01))
        for call in (
            lambda: transport.verify("x", Verify(1, 0)),
            lambda: transport.ask("x", Ask(1, 1)),
        ):
            with pytest.raises(TimedOut, match="did not answer"):
                await call()
        await transport.aclose()


async def refused(status: int, content: bytes) -> CosdError:
    mock = httpx.MockTransport(lambda request: httpx.Response(status, content=content))
    async with httpx.AsyncClient(transport=mock) as http:
        client = EdgeClient("http://h:1/base", http_client=http, retry=Retry(attempts=1))
        with pytest.raises(CosdError) as caught:
            await client.connect()
        await client.aclose()
    return caught.value


async def test_errors_of_servers_are_sentences() -> None:
    error = await refused(429, b'{"error": {"code": "rate_limited", "message": null}}')
    assert isinstance(error, RateLimited)
    assert "/base/v1/models with 'rate_limited' and does not say why" in str(error)
    error = await refused(500, b'{"error": {"code": "model_folder_invalid", "message": "no x"}}')
    assert isinstance(error, ModelFolderInvalid)
    assert str(error) == "the server at http://h:1/base: no x"
    error = await refused(404, b"nginx")
    assert isinstance(error, ProtocolError)
    assert "answered 404 to /base/v1/models" in str(error)


async def test_an_http_client_that_is_closed_is_named(server: Serving) -> None:
    http = httpx.AsyncClient()
    await http.aclose()
    client = EdgeClient(server.url, draft=related_draft(), http_client=http)
    with pytest.raises(CosdError, match="http_client that was given is closed"):
        await client.connect()
