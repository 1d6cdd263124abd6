"""No connection, and whose fault it may be."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from harness.serving import Serving

from edge_sdk import EdgeClient, Retry
from edge_sdk.errors import ConnectionFailed, InvalidRequest
from edge_sdk.wire import Verify

SERVER = "http://127.0.0.1:1"
PROXY = "http://me:secret@127.0.0.1:9"
NAMES = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"]


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def said(transport: Any = "http", *, address: str = SERVER, **options: Any) -> str:
    client = EdgeClient(address, transport=transport, retry=Retry(attempts=1), **options)
    with pytest.raises(ConnectionFailed) as caught:
        await client.transport.verify("0" * 32, Verify(0, 0))
    await client.aclose()
    return caught.value.message


@pytest.mark.parametrize("transport", ["http", "websocket"])
@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
async def test_a_proxy_that_is_away_is_named(
    monkeypatch: pytest.MonkeyPatch, transport: str, name: str
) -> None:
    assert "is the server running" in await said(transport)
    monkeypatch.setenv(name, PROXY)
    through = await said(transport)
    assert "through the proxy 127.0.0.1:9 that the environment names" in through
    assert "NO_PROXY=127.0.0.1 goes without it" in through
    assert "secret" not in through
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert "is the server running" in await said(transport)


async def test_a_client_of_ones_own_has_its_own_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", PROXY)
    async with httpx.AsyncClient(trust_env=False) as http:
        assert "proxy" not in await said(http_client=http)


@pytest.mark.parametrize("address", ["::::", "http://[::1", "ftp://x"])
@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
def test_what_is_no_proxy(monkeypatch: pytest.MonkeyPatch, name: str, address: str) -> None:
    monkeypatch.setenv(name, address)
    with pytest.raises(InvalidRequest, match="the proxy that the environment names"):
        EdgeClient(SERVER)


@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_server_without_tls(transport: str, server: Serving) -> None:
    said_it = await said(transport, address=server.url.replace("http://", "https://"))
    assert said_it.endswith("does not speak TLS; use http://, or put TLS in front of the server")
    assert "SSL" not in said_it


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/behind/v1"])
def test_an_address_of_openais_clients(path: str) -> None:
    with pytest.raises(InvalidRequest, match=r"give it without /v1: http://127\.0\.0\.1:1") as told:
        EdgeClient(f"{SERVER}{path}")
    assert told.value.message.endswith(path.rstrip("/").removesuffix("/v1"))
    EdgeClient(f"{SERVER}/v1x")
