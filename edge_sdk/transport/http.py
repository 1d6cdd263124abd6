"""Requests and replies over HTTP/1.1 keep-alive."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import httpx

from edge_sdk.arguments import kind as kind_of
from edge_sdk.arguments import shown
from edge_sdk.errors import CosdError, InvalidRequest, ProtocolError, TimedOut
from edge_sdk.link import Link, LinkMeter
from edge_sdk.transport.address import ApiKey, KeySource, checked_url, tls_context
from edge_sdk.transport.base import MAX_SMALL_REPLY, Transport, decoded
from edge_sdk.transport.exchange import Exchange
from edge_sdk.transport.framing import request_bytes, response_bytes
from edge_sdk.transport.refusal import refusal
from edge_sdk.transport.tries import Tries, Wait
from edge_sdk.transport.unreachable import proxy_of, unreachable
from edge_sdk.waiting import Retry, Timeouts
from edge_sdk.wire import (
    Generate,
    Generated,
    Open,
    Opened,
    PairRegistered,
    RegisterPair,
    encode,
    limits,
)
from edge_sdk.wire.frames import Up

# The server keeps idle connections for 75 s by default; leaving first avoids the race of a
# request against its close.
IDLE_SECONDS: Final = 60.0
SESSION_HEADER: Final = "x-session-id"
_MSGPACK: Final = {"content-type": "application/msgpack"}
_MAX_ERROR: Final = 64 * 1024
_MAX_FRAME: Final = 64 * 1024


class HttpTransport(Transport):
    """One server over HTTP. Requests that are in flight together use a connection each.

    Args:
        base_url: e.g. "https://host:8077".
        api_key: bearer key, or an async function that returns it.
        verify: TLS verification; an `ssl.SSLContext` for own authorities.
        ca_file: PEM file of the authorities to trust instead of the public ones.
        client: an httpx client to use instead of an own one; it is not closed.

    Attributes:
        own_client: no httpx client was given.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: ApiKey | None = None,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        verify: ssl.SSLContext | bool = True,
        ca_file: Path | str | None = None,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        for name, value, cls, give in (
            ("timeouts", timeouts, Timeouts, "Timeouts(reply=...)"),
            ("retry", retry, Retry, "Retry(attempts=...)"),
            ("http_client", client, httpx.AsyncClient, "an httpx.AsyncClient"),
        ):
            if not isinstance(value, cls) and value is not None:
                raise InvalidRequest(
                    f"{name} is {shown(value)} ({kind_of(value)}); give {give}", field=name
                )
        timeouts = timeouts or Timeouts()
        super().__init__(Tries(retry or Retry(), timeouts))
        self.base_url = checked_url(base_url)
        self.keys = KeySource(api_key)
        self.tls = tls_context(verify, ca_file)
        self._timeout = httpx.Timeout(timeouts.reply, connect=timeouts.connect)
        self.own_client = client is None
        self._client = client or self._made()
        self.meter = LinkMeter()
        self.closed = False
        self._sticky = False

    def _made(self) -> httpx.AsyncClient:
        try:
            return httpx.AsyncClient(
                verify=self.tls,
                limits=httpx.Limits(keepalive_expiry=IDLE_SECONDS),
                timeout=self._timeout,
            )
        except (ImportError, httpx.InvalidURL, ValueError) as error:
            raise InvalidRequest(
                f"the proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) cannot "
                f"be used: {error}; correct or unset it, or give an http_client of your own"
            ) from error

    @property
    def tries(self) -> Tries:
        return self._tries

    @property
    def link(self) -> Link:
        return self.meter.link

    async def aclose(self) -> None:
        self.closed = True
        if self.own_client:
            await self._client.aclose()

    async def card(self) -> dict[str, Any]:
        data, _ = await self._request("GET", "/v1/models", b"", limit=MAX_SMALL_REPLY)
        try:
            card = json.loads(data)
        except (ValueError, RecursionError):
            card = None
        if not isinstance(card, dict):
            raise ProtocolError(
                f"{self.base_url}/v1/models is no cosd server: its reply is not JSON"
            )
        self._sticky = card.get("sticky") is True
        return card

    async def vocabulary(self, fingerprint: str) -> bytes:
        path = f"/v1/vocabularies/{fingerprint}"
        data, _ = await self._request("GET", path, b"", limit=limits.MAX_TABLE_BODY)
        return data

    async def register_pair(
        self, message: RegisterPair, session_id: str | None = None
    ) -> PairRegistered:
        body = encode(message)
        data, _ = await self._request(
            "PUT", "/v1/pairs", body, limit=MAX_SMALL_REPLY, session_id=session_id
        )
        return decoded(PairRegistered, data, MAX_SMALL_REPLY)

    async def open(self, session_id: str, message: Open) -> Opened:
        path = f"/v1/sessions/{session_id}"
        data, _ = await self._request(
            "PUT", path, encode(message), limit=MAX_SMALL_REPLY, session_id=session_id
        )
        return decoded(Opened, data, MAX_SMALL_REPLY)

    async def close_session(self, session_id: str) -> None:
        path = f"/v1/sessions/{session_id}"
        await self._request("DELETE", path, b"", limit=_MAX_ERROR, session_id=session_id)

    async def generate(
        self, session_id: str, message: Generate
    ) -> AsyncGenerator[tuple[Generated, Exchange], None]:
        path = f"/v1/sessions/{session_id}/generate"

        async def begun() -> httpx.Response:
            request = await self._build("POST", path, encode(message), session_id)
            return await self._client.send(request, stream=True)

        try:
            response = await self._tries.in_time("reply", begun(), asked=f"{self.base_url} {path}")
        except httpx.HTTPError as error:
            raise self._translated(error) from error
        try:
            request = response.request
            up, wire_up = len(request.content), request_bytes(request)
            wire_down = response_bytes(response, 0)
            if response.status_code != 200:
                raise self._refused(response, await _bounded(response, _MAX_ERROR))
            buffer = b""
            async for part in response.aiter_raw():
                buffer += part
                while len(buffer) >= 4:
                    size = int.from_bytes(buffer[:4], "little")
                    if size > _MAX_FRAME:
                        raise ProtocolError(f"the server's stream has a frame of {size} bytes")
                    if len(buffer) < 4 + size:
                        break
                    frame, buffer = buffer[4 : 4 + size], buffer[4 + size :]
                    # Chunked transfer adds the length in hex and two line ends.
                    framed = 4 + size + len(f"{4 + size:x}") + 4
                    cost = Exchange(up, 4 + size, wire_up, wire_down + framed)
                    up = wire_up = wire_down = 0
                    yield decoded(Generated, frame, _MAX_FRAME), cost
        except httpx.HTTPError as error:
            raise self._translated(error) from error
        finally:
            await response.aclose()

    async def _once(
        self, kind: Up, session_id: str, body: bytes, *, limit: int, wait: Wait
    ) -> tuple[bytes, Exchange]:
        path = f"/v1/sessions/{session_id}/{kind.name.lower()}"
        return await self._tries.in_time(
            wait, self._send("POST", path, body, limit, session_id), asked=f"{self.base_url} {path}"
        )

    async def _request(
        self, method: str, path: str, body: bytes, *, limit: int, session_id: str | None = None
    ) -> tuple[bytes, Exchange]:
        return await self._tries.until_done(
            lambda: self._tries.in_time(
                "setup",
                self._send(method, path, body, limit, session_id),
                asked=f"{self.base_url} {path}",
            ),
            wait="setup",
        )

    async def _send(
        self, method: str, path: str, body: bytes, limit: int, session_id: str | None
    ) -> tuple[bytes, Exchange]:
        request = await self._build(method, path, body, session_id)
        begin = time.perf_counter()
        try:
            response = await self._client.send(request, stream=True)
            try:
                data = await _bounded(response, limit)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise self._translated(error) from error
        if not response.is_success:
            raise self._refused(response, data)
        exchange = Exchange(
            up_bytes=len(body),
            down_bytes=len(data),
            wire_up_bytes=request_bytes(request),
            wire_down_bytes=response_bytes(response, len(data)),
            server_seconds=_server_seconds(response.headers.get("server-timing", "")),
        )
        spent = time.perf_counter() - begin - exchange.server_seconds
        self.meter.note(spent, exchange.up_bytes + exchange.down_bytes)
        return data, exchange

    def headers_of(self, session_id: str | None) -> dict[str, str]:
        """What a server that is several sends a session's requests to the same one by."""
        return {SESSION_HEADER: session_id} if self._sticky and session_id is not None else {}

    async def _build(
        self, method: str, path: str, body: bytes, session_id: str | None
    ) -> httpx.Request:
        self.check_open()
        if self._client.is_closed:
            raise InvalidRequest(
                "the http_client that was given is closed; keep it open as long as the client",
                field="http_client",
            )
        # A body that grows when it is unpacked would not be bounded by its limit.
        headers = {"accept-encoding": "identity"} | await self.keys.headers()
        headers |= self.headers_of(session_id)
        return self._client.build_request(
            method,
            self.base_url + path,
            content=body or None,
            headers=headers | (_MSGPACK if body else {}),
            timeout=self._timeout,
        )

    def check_open(self) -> None:
        """Raises:
        InvalidRequest: the transport was closed.
        """
        if self.closed:
            raise InvalidRequest("the client is closed; make a new one")

    def _translated(self, error: httpx.HTTPError) -> CosdError:
        if isinstance(error, httpx.TimeoutException):
            return TimedOut(f"{self.base_url} did not answer in time ({type(error).__name__})")
        proxy = proxy_of(self.base_url) if self.own_client else None
        return unreachable(self.base_url, error, proxy=proxy)

    def _refused(self, response: httpx.Response, data: bytes) -> CosdError:
        path = response.request.url.path
        return refusal(self.base_url, path, response.status_code, response.headers, data)


async def _bounded(response: httpx.Response, limit: int) -> bytes:
    """The body of a response, but never more than `limit` bytes of it."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ProtocolError("the server's reply is compressed, which was not asked for")
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > limit:
            raise ProtocolError(f"the server's reply is over the limit of {limit} bytes")
        parts.append(part)
    return b"".join(parts)


def _server_seconds(header: str) -> float:
    for part in header.split(","):
        name, _, value = part.strip().partition(";dur=")
        if name == "verify":
            try:
                return float(value) / 1000
            except ValueError:
                return 0.0
    return 0.0
