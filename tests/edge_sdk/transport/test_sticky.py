"""Several servers behind one address, which a session's requests tell apart by a header."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from harness.serving import PROMPT, QUICK, Serving, connected, related_draft, serving

from edge_sdk import EdgeClient, Stream
from edge_sdk.transport import websocket

HEADER = "x-session-id"


class Balancer(httpx.AsyncBaseTransport):
    """Sends what names a session to the server that its id falls on, the rest round robin."""

    def __init__(self, ports: list[int]) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self._turns = itertools.count()
        self.ports = ports
        self.named: set[str] = set()
        self.unnamed: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        session = request.headers.get(HEADER)
        if session is None:
            self.unnamed.append(request.url.path)
            number = next(self._turns)
        else:
            self.named.add(session)
            number = int(session, 16)
        port = self.ports[number % len(self.ports)]
        request.url = request.url.copy_with(host="127.0.0.1", port=port)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@pytest.fixture
def servers() -> Iterator[list[Serving]]:
    with serving() as one, serving() as two:
        for server in (one, two):
            server.app.state.sticky = True
        yield [one, two]


@contextlib.asynccontextmanager
async def balanced(servers: list[Serving]) -> AsyncIterator[tuple[EdgeClient, Balancer]]:
    balancer = Balancer([server.port for server in servers])
    async with (
        httpx.AsyncClient(transport=balancer) as http,
        EdgeClient(
            "http://balancer", draft=related_draft(), http_client=http, cache=None, retry=QUICK
        ) as client,
    ):
        yield client, balancer


async def text_of(stream: Stream) -> list[int]:
    async for _ in stream:
        pass
    return [token.id for token in stream.tokens]


async def test_every_request_of_a_session_reaches_the_same_server(servers: list[Serving]) -> None:
    async with balanced(servers) as (client, balancer):
        for seed in range(8):
            # Rounds, further candidates and the server's own tokens; each pair is registered
            # where its session is opened.
            for method in ("coupled", "candidates", "autoregressive"):
                stream = client.generate(PROMPT, method=method, max_tokens=12, gamma=2, seed=seed)
                assert len(await text_of(stream)) == 12
                assert stream.stats.reopened == stream.stats.retries == 0
        assert {int(session, 16) % 2 for session in balancer.named} == {0, 1}
        assert {path.split("/")[2] for path in balancer.unnamed} == {"models", "vocabularies"}


async def test_a_server_that_goes_costs_no_token(servers: list[Serving]) -> None:
    async with balanced(servers) as (client, balancer):
        options: dict[str, Any] = {"method": "coupled", "max_tokens": 40, "gamma": 2}
        whole = [await text_of(client.generate(PROMPT, seed=seed, **options)) for seed in range(4)]
        for seed in range(4):
            stream = client.generate(PROMPT, seed=seed, **options)
            gone = False
            async for _ in stream:
                if len(stream.tokens) >= 10 and not gone:
                    # The hash falls on the other server from here on, as when the first is gone.
                    balancer.ports.reverse()
                    gone = True
            assert [token.id for token in stream.tokens] == whole[seed]
            assert stream.stats.reopened >= 1


async def test_a_server_that_is_alone_is_sent_no_header() -> None:
    with serving() as server:
        async with balanced([server]) as (client, balancer):
            await text_of(client.generate(PROMPT, method="coupled", max_tokens=8, gamma=2))
        assert balancer.named == set()


@pytest.mark.parametrize("sticky", [True, False])
async def test_an_upgrade_names_its_session(sticky: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrades: list[tuple[str, Any]] = []
    real = websocket.dial

    async def dial(base_url: str, path: str, **options: Any) -> Any:
        upgrades.append((path, options["headers"]))
        return await real(base_url, path, **options)

    monkeypatch.setattr(websocket, "dial", dial)
    with serving() as server:
        server.app.state.sticky = sticky
        async with connected(server, related_draft(), transport="websocket") as client:
            await text_of(client.generate(PROMPT, method="coupled", max_tokens=8, gamma=2))
            await asyncio.sleep(0)
    assert upgrades
    for path, headers in upgrades:
        assert headers == ({HEADER: path.split("/")[3]} if sticky else {})
