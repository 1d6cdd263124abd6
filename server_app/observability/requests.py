"""Every request and WebSocket connection: its id, its log line, its metrics, its span."""

from __future__ import annotations

import logging
import re
import secrets
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edge_sdk.errors import ServerFault
from server_app import problems
from server_app.observability.facts import RequestFacts, noting
from server_app.observability.logs import log_facts
from server_app.observability.metrics import Metrics

if TYPE_CHECKING:
    from server_app.observability.tracing import Tracing

log = logging.getLogger(__name__)

REQUEST_ID: Final = "x-request-id"
UNMATCHED: Final = "unmatched"

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WEBSOCKET: Final = "WEBSOCKET"
_PREFIX: Final = 8  # characters of session ids and owners that are logged
# Asked for every few seconds, or once a round: too many for a line each.
_FREQUENT = re.compile(r"/(health|ready|metrics)|.*/(verify|ask)")
_READY: Final = "/ready"


class RequestLog:
    """ASGI middleware around everything that answers.

    A request keeps the id of its `x-request-id` header if that is 1 to 64 letters, digits, dots,
    underscores or hyphens, else it gets one; the reply carries it. An exception that nothing
    handled is logged with that id, answered with `server_fault`, and raised again.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics, tracing: Tracing | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get(REQUEST_ID, "")
        facts = RequestFacts(
            request_id=given if _SANE_ID.fullmatch(given) else secrets.token_hex(8),
            count_error=self._metrics.error,
        )
        websocket = scope["type"] == "websocket"
        verb = _WEBSOCKET if websocket else scope["method"]
        under_way = (
            self._metrics.websocket_connections if websocket else (self._metrics.requests_in_flight)
        )
        span = self._tracing.request(verb, headers) if self._tracing else nullcontext()
        reply = _Reply(send, facts)
        started = time.perf_counter()
        under_way.inc()
        with noting(facts), span as made:
            try:
                await self._app(scope, receive, reply.send)
            except Exception as error:
                await self._failed(scope, receive, reply, error)
                raise
            finally:
                under_way.dec()
                seconds = time.perf_counter() - started
                route = _route(scope)
                self._metrics.request(verb, route, reply.status, seconds)
                if self._tracing is not None and made is not None:
                    noted = _noted(scope, facts)
                    self._tracing.answered(made, verb, route, reply.status, noted)
                _write(scope, verb, route, reply.status, seconds, facts)

    async def _failed(
        self, scope: Scope, receive: Receive, reply: _Reply, error: Exception
    ) -> None:
        fault = ServerFault("the server failed on this request; its log says why")
        facts = {"request_id": reply.facts.request_id, "route": _route(scope)}
        log_facts(log, logging.ERROR, "a request failed", facts, exc_info=error)
        reply.facts.fail(fault.code)
        if scope["type"] == "http" and not reply.started:
            await problems.reply(fault)(scope, receive, reply.send)


class _Reply:
    """Passes a reply on with the request's id, and notes its status."""

    def __init__(self, send: Send, facts: RequestFacts) -> None:
        self._send = send
        self.facts = facts
        self.started = False
        self.status = 0

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            self.started = True
            self.status = message["status"]
            MutableHeaders(scope=message)[REQUEST_ID] = self.facts.request_id
        elif kind == "websocket.accept":
            self.started = True
            self.status = 101
            message = {**message, "headers": [*message.get("headers", ()), self._header()]}
        elif kind == "websocket.close" and not self.started:
            self.status = 403
        await self._send(message)

    def _header(self) -> tuple[bytes, bytes]:
        return REQUEST_ID.encode(), self.facts.request_id.encode()


def _route(scope: Scope) -> str:
    """Template of the route, never the path itself."""
    return str(getattr(scope.get("route"), "path", UNMATCHED))


def _noted(scope: Scope, facts: RequestFacts) -> dict[str, str | int]:
    """Facts that are not empty, session and owner shortened."""
    session = str(scope.get("path_params", {}).get("session_id", ""))
    noted: dict[str, str | int] = {
        "request_id": facts.request_id,
        "owner": facts.owner[:_PREFIX],
        "session": session[:_PREFIX] if re.fullmatch(r"[0-9a-f]{32}", session) else "",
        "tokens": facts.tokens,
        "code": facts.code,
    }
    return {name: value for name, value in noted.items() if value}


def _write(
    scope: Scope, verb: str, route: str, status: int, seconds: float, facts: RequestFacts
) -> None:
    if status >= 500 and status != 503:
        level = logging.ERROR
    elif status == 503 and route == _READY:
        # Its answer while a server drains, to whoever asks every few seconds.
        level = logging.DEBUG
    elif status == 503 or not status:
        level = logging.WARNING
    elif status < 400 and _FREQUENT.fullmatch(route):
        level = logging.DEBUG
    else:
        level = logging.INFO
    if not log.isEnabledFor(level):
        return
    line: dict[str, Any] = {
        "verb": verb,
        "route": route,
        "status": status,
        "seconds": round(seconds, 4),
        **_noted(scope, facts),
    }
    log_facts(log, level, "request" if verb != _WEBSOCKET else "connection", line)
