"""Requests and replies over HTTP: retries, limits, and errors of the project's own tree."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import httpx

from edge_sdk.address import checked_key, checked_url
from edge_sdk.arguments import kind, shown
from edge_sdk.errors import (
    ConnectionFailed,
    CosdError,
    InvalidRequest,
    ModelError,
    PreparationError,
    ProtocolError,
    RateLimited,
    ServerUnavailable,
    TimedOut,
    error_for_code,
)
from edge_sdk.framing import request_bytes, response_bytes
from edge_sdk.link import Link, LinkMeter
from edge_sdk.waiting import Retry, Timeouts
from edge_sdk.wire import (
    Answer,
    Ask,
    Generate,
    Generated,
    Open,
    Opened,
    PairRegistered,
    RegisterPair,
    Truncate,
    Truncated,
    Verdict,
    Verify,
    decode,
    encode,
    limits,
)

log = logging.getLogger(__name__)

_MSGPACK: Final = {"content-type": "application/msgpack"}
_MAX_ERROR: Final = 64 * 1024
_MAX_CARD: Final = 1024 * 1024
_MAX_FRAME: Final = 64 * 1024
_MAX_RETRY_AFTER: Final = 60.0  # seconds; a server that asks for more is not waited for

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one request cost.

    Attributes:
        up_bytes, down_bytes: bodies.
        wire_up_bytes, wire_down_bytes: with HTTP framing.
        server_seconds: what the server reports to have spent.
    """

    up_bytes: int
    down_bytes: int
    wire_up_bytes: int
    wire_down_bytes: int
    server_seconds: float = 0.0


class HttpTransport:
    """One server over HTTP/1.1 keep-alive.

    Args:
        base_url: e.g. "https://host:8077".
        api_key: bearer key.
        verify: TLS verification; an `ssl.SSLContext` for own authorities.
        client: an httpx client to use instead of an own one; it is not closed.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        verify: ssl.SSLContext | bool = True,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        for name, value, kinds, give in (
            ("timeouts", timeouts, Timeouts, "Timeouts(reply=...)"),
            ("retry", retry, Retry, "Retry(attempts=...)"),
            ("http_client", client, httpx.AsyncClient, "an httpx.AsyncClient"),
            ("verify", verify, bool | ssl.SSLContext, "True, False or an ssl.SSLContext"),
        ):
            if not isinstance(value, kinds) and (value is not None or name == "verify"):
                raise InvalidRequest(
                    f"{name} is {shown(value)} ({kind(value)}); give {give}", field=name
                )
        self._base = checked_url(base_url)
        # A body that grows when it is unpacked would not be bounded by its limit.
        self._headers = {"accept-encoding": "identity"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {checked_key(api_key)}"
        self._retry = retry or Retry()
        timeouts = timeouts or Timeouts()
        self._timeouts = timeouts
        self._timeout = httpx.Timeout(timeouts.reply, connect=timeouts.connect)
        self._own = client is None
        # The server keeps idle connections for 75 s by default; leaving first avoids the race
        # of a request against its close.
        self._client = client or httpx.AsyncClient(
            verify=verify,
            limits=httpx.Limits(keepalive_expiry=60.0),
            timeout=self._timeout,
        )
        self.retries = 0
        self._meter = LinkMeter()
        self._closed = False

    @property
    def link(self) -> Link:
        """What the link is like, as far as it is known."""
        return self._meter.link

    async def aclose(self) -> None:
        """Close connections; every later request is refused. Idempotent."""
        self._closed = True
        if self._own:
            await self._client.aclose()

    async def card(self) -> dict[str, Any]:
        """The server's card (`GET /v1/models`) as JSON."""
        data, _ = await self._request("GET", "/v1/models", b"", limit=_MAX_CARD)
        try:
            card = json.loads(data)
        except (ValueError, RecursionError):
            card = None
        if not isinstance(card, dict):
            raise ProtocolError(f"{self._base}/v1/models is no cosd server: its reply is not JSON")
        return card

    async def vocabulary(self, fingerprint: str) -> bytes:
        """The compressed byte table of the target."""
        path = f"/v1/vocabularies/{fingerprint}"
        data, _ = await self._request("GET", path, b"", limit=limits.MAX_TABLE_BODY)
        return data

    async def register_pair(self, message: RegisterPair) -> PairRegistered:
        return (await self._call("PUT", "/v1/pairs", message, PairRegistered))[0]

    async def open(self, session_id: str, message: Open) -> Opened:
        return (await self._call("PUT", f"/v1/sessions/{session_id}", message, Opened))[0]

    async def verify(self, session_id: str, message: Verify) -> tuple[Verdict, Exchange]:
        path = f"/v1/sessions/{session_id}/verify"
        return await self._call(
            "POST", path, message, Verdict, limit=limits.MAX_REPLY_BODY, in_round=True
        )

    async def ask(self, session_id: str, message: Ask) -> tuple[Answer, Exchange]:
        path = f"/v1/sessions/{session_id}/ask"
        return await self._call(
            "POST", path, message, Answer, limit=limits.MAX_REPLY_BODY, in_round=True
        )

    async def truncate(self, session_id: str, message: Truncate) -> Truncated:
        path = f"/v1/sessions/{session_id}/truncate"
        return (await self._call("POST", path, message, Truncated))[0]

    async def close_session(self, session_id: str) -> None:
        await self._request("DELETE", f"/v1/sessions/{session_id}", b"", limit=_MAX_ERROR)

    async def generate(
        self, session_id: str, message: Generate
    ) -> AsyncGenerator[tuple[Generated, Exchange], None]:
        """Tokens of the server alone, as they come; no retries, since the caller knows how
        far the text has come.

        Raises:
            ConnectionFailed, TimedOut: the stream broke.
        """
        request = self._build("POST", f"/v1/sessions/{session_id}/generate", encode(message))
        try:
            response = await self._in_time(
                "reply",
                self._client.send(request, stream=True),
                request.url.path,
            )
        except httpx.HTTPError as error:
            raise self._translated(error) from error
        try:
            up, wire_up = len(request.content), request_bytes(request)
            wire_down = response_bytes(response, 0)
            if response.status_code != 200:
                raise self._error(response, await _bounded(response, _MAX_ERROR))
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
                    yield self._decoded(Generated, frame, _MAX_FRAME), cost
        except httpx.HTTPError as error:
            raise self._translated(error) from error
        finally:
            await response.aclose()

    async def _call(
        self,
        method: str,
        path: str,
        message: Any,
        reply: type[R],
        *,
        limit: int = _MAX_CARD,
        in_round: bool = False,
    ) -> tuple[R, Exchange]:
        body = encode(message)
        data, exchange = await self._request(method, path, body, limit=limit, in_round=in_round)
        return self._decoded(reply, data, limit), exchange

    def _decoded(self, reply: type[R], data: bytes, limit: int) -> R:
        try:
            return decode(reply, data, limit=limit)
        except InvalidRequest as error:
            raise ProtocolError(f"the server's reply cannot be read: {error}") from error

    async def _request(
        self, method: str, path: str, body: bytes, *, limit: int, in_round: bool = False
    ) -> tuple[bytes, Exchange]:
        failures = 0
        name: Literal["reply", "setup"] = "reply" if in_round else "setup"
        begin = time.monotonic()
        while True:
            try:
                return await self._in_time(name, self._send(method, path, body, limit), path)
            except (ConnectionFailed, TimedOut, RateLimited, ServerUnavailable) as error:
                failures += 1
                wait = self._wait(failures, error)
                if failures >= self._retry.attempts or wait > _MAX_RETRY_AFTER:
                    raise
                # A server that hangs from the start is told of after the second try.
                late = time.monotonic() - begin > 1.5 * self._timeouts.setup
                if late and not in_round and isinstance(error, TimedOut):
                    raise
                log.warning("sending again in %.2f s: %s", wait, error)
            await asyncio.sleep(wait)
            self.retries += 1

    async def _in_time(self, name: Literal["reply", "setup"], work: Awaitable[R], path: str) -> R:
        """Bound the whole, which a server that sends a byte now and then would not end."""
        seconds: float = getattr(self._timeouts, name)
        try:
            async with asyncio.timeout(seconds) as bound:
                return await work
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise TimedOut(
                f"{self._base} did not answer {path} in full within {seconds:g} s; is it "
                f"overloaded? A longer time is set with Timeouts({name}=...)"
            ) from error

    async def _send(
        self, method: str, path: str, body: bytes, limit: int
    ) -> tuple[bytes, Exchange]:
        request = self._build(method, path, body)
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
            raise self._error(response, data)
        exchange = Exchange(
            up_bytes=len(body),
            down_bytes=len(data),
            wire_up_bytes=request_bytes(request),
            wire_down_bytes=response_bytes(response, len(data)),
            server_seconds=_server_seconds(response.headers.get("server-timing", "")),
        )
        spent = time.perf_counter() - begin - exchange.server_seconds
        self._meter.note(spent, exchange.up_bytes + exchange.down_bytes)
        return data, exchange

    def _build(self, method: str, path: str, body: bytes) -> httpx.Request:
        if self._closed:
            raise InvalidRequest("the client is closed; make a new one")
        if self._client.is_closed:
            raise InvalidRequest(
                "the http_client that was given is closed; keep it open as long as the client",
                field="http_client",
            )
        headers = self._headers | (_MSGPACK if body else {})
        return self._client.build_request(
            method,
            self._base + path,
            content=body or None,
            headers=headers,
            timeout=self._timeout,
        )

    def _wait(self, failures: int, error: CosdError) -> float:
        # Clients that lost the same server must not all come back at once.
        jitter = random.uniform(0.75, 1.25)
        return max(error.retry_after or 0.0, self._retry.delay(failures) * jitter)

    def _translated(self, error: httpx.HTTPError) -> CosdError:
        if isinstance(error, httpx.TimeoutException):
            return TimedOut(f"{self._base} did not answer in time ({type(error).__name__})")
        reason = str(error) or type(error).__name__
        return ConnectionFailed(
            f"no connection to {self._base} ({reason}); is the server running and reachable?"
        )

    def _error(self, response: httpx.Response, data: bytes) -> CosdError:
        try:
            body = json.loads(data)["error"]
            code, message, field = str(body["code"]), body["message"], body.get("field")
        except (ValueError, KeyError, TypeError, RecursionError):
            return ProtocolError(
                f"{self._base} answered {response.status_code} to {response.request.url.path} "
                f"without an error of this protocol; is it a cosd server?"
            )
        cls = error_for_code(code)
        if not isinstance(message, str) or not message.strip():
            message = (
                f"{self._base} refused {response.request.url.path} with {shown(code)} and does "
                f"not say why"
            )
        elif issubclass(cls, ModelError | PreparationError):
            message = f"the server at {self._base}: {message}"
        after = response.headers.get("retry-after", "")
        return cls(
            message,
            field=None if field is None else str(field),
            retry_after=float(after) if after.isascii() and after.isdigit() else None,
        )


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
