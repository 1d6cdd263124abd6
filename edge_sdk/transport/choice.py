"""Which transport a client uses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any, Final, Literal, get_args

from websockets.exceptions import ConnectionClosed

from edge_sdk.arguments import kind as kind_of
from edge_sdk.arguments import shown
from edge_sdk.decoding.registry import method_named
from edge_sdk.errors import ConnectionFailed, CosdError, InvalidRequest
from edge_sdk.link import Link
from edge_sdk.transport.base import Transport
from edge_sdk.transport.dial import UpgradeRefused
from edge_sdk.transport.exchange import Exchange
from edge_sdk.transport.http import HttpTransport
from edge_sdk.transport.socket import Socket
from edge_sdk.transport.tries import Wait
from edge_sdk.transport.websocket import WebSocketTransport
from edge_sdk.waiting import MAX_RETRY_AFTER
from edge_sdk.wire import Generate, Generated, Open, Opened, PairRegistered, RegisterPair
from edge_sdk.wire.frames import Up

log = logging.getLogger(__name__)

TransportName = Literal["auto", "http", "websocket"]

_USELESS_SOCKETS: Final = 3  # in a row that broke without a reply: they are blocked
_PAUSE_SECONDS: Final = 2.0  # between connections that cannot be made


class AutoTransport(Transport):
    """HTTP, and a WebSocket for a session's rounds as soon as it stands.

    The WebSocket is made while the session opens, beside it; until then, and whenever it broke,
    requests go over HTTP, those that were in flight at once, so it never costs a wait. Where a
    proxy blocks it, that is found out once, said in one line of the log, and HTTP it is from
    then on.

    Args:
        http: closed with this transport.
    """

    def __init__(self, http: HttpTransport) -> None:
        super().__init__(http.tries)
        self._http = http
        self._socket = WebSocketTransport(http, on_closed=self._note_closed)
        self._offered = False
        self._blocked = False
        self._useless = 0
        self._not_before = 0.0

    @property
    def link(self) -> Link:
        return self._http.link

    async def aclose(self) -> None:
        await self._socket.aclose()

    async def card(self) -> dict[str, Any]:
        card = await self._http.card()
        offered = card.get("transports")
        self._offered = isinstance(offered, list) and "websocket" in offered
        return card

    async def vocabulary(self, fingerprint: str) -> bytes:
        return await self._http.vocabulary(fingerprint)

    async def register_pair(
        self, message: RegisterPair, session_id: str | None = None
    ) -> PairRegistered:
        return await self._http.register_pair(message, session_id)

    async def open(self, session_id: str, message: Open) -> Opened:
        # A text of the server alone is one long reply, which is as good over HTTP.
        if method_named(message.generation.method).drafts:
            self._begin(session_id)
        return await self._http.open(session_id, message)

    async def close_session(self, session_id: str) -> None:
        await self._socket.close_session(session_id)

    async def generate(
        self, session_id: str, message: Generate
    ) -> AsyncGenerator[tuple[Generated, Exchange], None]:
        by = self._socket if self._socket.ready(session_id) else self._http
        tokens = by.generate(session_id, message)
        try:
            async for token in tokens:
                yield token
        finally:
            await tokens.aclose()

    async def _once(
        self, kind: Up, session_id: str, body: bytes, *, limit: int, wait: Wait
    ) -> tuple[bytes, Exchange]:
        if self._socket.ready(session_id):
            try:
                return await self._socket._once(kind, session_id, body, limit=limit, wait=wait)
            except ConnectionFailed as error:
                # The other way is there; only if that fails too there is something to wait for.
                log.info("sending again over HTTP: %s", error)
                self._tries.retries += 1
        self._begin(session_id)
        return await self._http._once(kind, session_id, body, limit=limit, wait=wait)

    def _begin(self, session_id: str) -> None:
        loop = asyncio.get_running_loop()
        if (
            self._offered
            and not self._blocked
            and not self._http.closed
            and loop.time() >= self._not_before
        ):
            task = self._socket.dialled(session_id, probing=True)
            if not task.done():
                task.add_done_callback(self._note_dialled)

    def _note_dialled(self, task: asyncio.Task[Socket]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if isinstance(error, UpgradeRefused):
            self._block(str(error))
            return
        if isinstance(error, TimeoutError):
            self._note_useless(str(error) or "no frame comes through")
        if not isinstance(error, CosdError | ConnectionClosed):
            log.error("a WebSocket could not be made", exc_info=error)
        # The server is away or does not want us now; HTTP will say so.
        after = getattr(error, "retry_after", None) or _PAUSE_SECONDS
        pause = min(max(after, _PAUSE_SECONDS), MAX_RETRY_AFTER)
        self._not_before = asyncio.get_running_loop().time() + pause

    def _note_closed(self, socket: Socket) -> None:
        if socket.answered:
            self._useless = 0
        elif socket.asked:
            self._note_useless("it broke before any reply")

    def _note_useless(self, reason: str) -> None:
        self._useless += 1
        if self._useless >= _USELESS_SOCKETS:
            self._block(f"{reason} ({self._useless} times in a row)")

    def _block(self, reason: str) -> None:
        if not self._blocked:
            self._blocked = True
            log.warning("going on over HTTP without a WebSocket: %s", reason)


def transport_named(name: str, http: HttpTransport) -> Transport:
    """The transport of a name to the server of `http`.

    Args:
        name: "http"; "websocket", whose failure is an error; or "auto". With an httpx client of
            the caller's, "auto" is "http": what was set up there would not hold for a WebSocket.
        http: closed with what is returned.

    Raises:
        InvalidRequest: there is no such name.
    """
    given: object = name
    if given not in get_args(TransportName):
        raise InvalidRequest(
            f"transport is {shown(given)} ({kind_of(given)}); give 'auto', 'http' or 'websocket'",
            field="transport",
        )
    if name == "websocket":
        return WebSocketTransport(http)
    return AutoTransport(http) if name == "auto" and http.own_client else http
