"""Rounds over a WebSocket a session; everything else over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from edge_sdk.errors import CosdError, SessionLost, TimedOut
from edge_sdk.link import Link
from edge_sdk.transport.base import Transport, decoded
from edge_sdk.transport.dial import dial
from edge_sdk.transport.exchange import Exchange
from edge_sdk.transport.http import HttpTransport
from edge_sdk.transport.socket import Socket
from edge_sdk.transport.tries import Wait
from edge_sdk.wire import (
    Generate,
    Generated,
    Open,
    Opened,
    PairRegistered,
    RegisterPair,
    encode,
)
from edge_sdk.wire.frames import REPLY_HEAD, Up, wire_bytes

_MAX_TOKEN: Final = 64 * 1024  # bytes of one token of a stream


class WebSocketTransport(Transport):
    """Opening a session and what comes before it goes over `http`. A session's first round opens
    its WebSocket; one that breaks is replaced when the next try is due, and the requests that
    had no answer go over the new one.

    Args:
        http: for everything else; closed with this transport.
        on_closed: told of each WebSocket that can no longer be used.
    """

    def __init__(
        self, http: HttpTransport, *, on_closed: Callable[[Socket], None] = lambda socket: None
    ) -> None:
        super().__init__(http.tries)
        self._http = http
        self._on_closed = on_closed
        self._sockets: dict[str, Socket] = {}
        self._retired: set[Socket] = set()
        self._dialling: dict[str, asyncio.Task[Socket]] = {}
        self._dials: set[asyncio.Task[Socket]] = set()
        self._farewells: set[asyncio.Task[None]] = set()

    @property
    def link(self) -> Link:
        return self._http.link

    async def aclose(self) -> None:
        self._http.closed = True
        for task in self._dials:
            task.cancel()
        await asyncio.gather(
            *(socket.aclose() for socket in {*self._sockets.values(), *self._retired}),
            *self._dials,
            *self._farewells,
            return_exceptions=True,
        )
        await self._http.aclose()

    async def card(self) -> dict[str, Any]:
        return await self._http.card()

    async def vocabulary(self, fingerprint: str) -> bytes:
        return await self._http.vocabulary(fingerprint)

    async def register_pair(
        self, message: RegisterPair, session_id: str | None = None
    ) -> PairRegistered:
        return await self._http.register_pair(message, session_id)

    async def open(self, session_id: str, message: Open) -> Opened:
        return await self._http.open(session_id, message)

    async def close_session(self, session_id: str) -> None:
        try:
            await self._http.close_session(session_id)
        finally:
            self.drop(session_id)

    def ready(self, session_id: str) -> bool:
        """The session has a WebSocket, so that a request needs no new connection."""
        socket = self._sockets.get(session_id)
        return socket is not None and socket.open

    def dialled(self, session_id: str, *, probing: bool = False) -> asyncio.Task[Socket]:
        """The connection that is being made for a session, begun if it is not.

        Args:
            probing: before it is ready, see that frames come through.
        """
        task = self._dialling.get(session_id)
        if task is None:
            task = asyncio.create_task(self._dial(session_id, probing))
            self._dialling[session_id] = task
            self._dials.add(task)

            def done(task: asyncio.Task[Socket]) -> None:
                self._dials.discard(task)
                if self._dialling.get(session_id) is task:
                    del self._dialling[session_id]
                if not task.cancelled():
                    task.exception()

            task.add_done_callback(done)
        return task

    def drop(self, session_id: str) -> None:
        """Close the session's WebSocket in the background."""
        # A connection still being made is finished first: whether it can be is worth knowing.
        self._dialling.pop(session_id, None)
        socket = self._sockets.pop(session_id, None)
        if socket is not None:
            task = asyncio.create_task(socket.aclose())
            self._farewells.add(task)
            task.add_done_callback(self._farewells.discard)

    def _retire(self, session_id: str) -> None:
        """Close the session's WebSocket once everything that was asked over it is answered."""
        socket = self._sockets.pop(session_id, None)
        if socket is not None:
            self._retired.add(socket)
            socket.retire()

    async def generate(
        self, session_id: str, message: Generate
    ) -> AsyncGenerator[tuple[Generated, Exchange], None]:
        body = encode(message)
        socket = await self._socket(session_id)
        up, wire_up = len(body), wire_bytes(1 + len(body), masked=True)
        silence = self._tries.timeouts.reply
        tokens = socket.stream(body, silence=silence)
        try:
            async for token in tokens:
                size = wire_bytes(1 + len(token), masked=False)
                yield decoded(Generated, token, _MAX_TOKEN), Exchange(up, len(token), wire_up, size)
                up = wire_up = 0
        except SessionLost:
            self._retire(session_id)
            raise
        except TimeoutError as error:
            if isinstance(error, CosdError):
                raise
            socket.abort("it did not answer in time")
            raise TimedOut(
                f"{self._http.base_url} sent no token for {silence:g} s; a longer time is set "
                f"with Timeouts(reply=...)"
            ) from error
        finally:
            await tokens.aclose()

    async def _once(
        self, kind: Up, session_id: str, body: bytes, *, limit: int, wait: Wait
    ) -> tuple[bytes, Exchange]:
        socket: Socket | None = None

        async def asked() -> tuple[bytes, Exchange]:
            nonlocal socket
            socket = await self._socket(session_id)
            begin = time.perf_counter()
            data, seconds = await socket.request(kind, body, limit=limit)
            exchange = Exchange(
                up_bytes=len(body),
                down_bytes=len(data),
                wire_up_bytes=wire_bytes(1 + len(body), masked=True),
                wire_down_bytes=wire_bytes(REPLY_HEAD + len(data), masked=False),
                server_seconds=seconds,
            )
            spent = time.perf_counter() - begin - seconds
            self._http.meter.note(spent, len(body) + len(data))
            return data, exchange

        path = f"/v1/sessions/{session_id}/{kind.name.lower()}"
        try:
            return await self._tries.in_time(wait, asked(), asked=f"{self._http.base_url} {path}")
        except TimedOut:
            if socket is not None:
                socket.abort("it did not answer in time")
            raise
        except SessionLost:
            # What takes its place has an id of its own. Others that wait are told so themselves.
            self._retire(session_id)
            raise

    async def _socket(self, session_id: str) -> Socket:
        self._http.check_open()
        socket = self._sockets.get(session_id)
        if socket is not None and socket.open:
            return socket
        dialling = self.dialled(session_id)
        try:
            # Another request may wait for the same one.
            return await asyncio.shield(dialling)
        except asyncio.CancelledError:
            self._http.check_open()
            raise

    async def _dial(self, session_id: str, probing: bool) -> Socket:
        http = self._http
        path = f"/v1/sessions/{session_id}/stream"
        seconds = self._tries.timeouts.connect
        connection = await dial(
            http.base_url,
            path,
            keys=http.keys,
            tls=http.tls,
            seconds=seconds,
            headers=http.headers_of(session_id),
        )
        socket = Socket(
            connection,
            base_url=http.base_url,
            path=path,
            on_closed=lambda socket: self._gone(session_id, socket),
        )
        try:
            if probing:
                await socket.probe(seconds)
        except BaseException:
            socket.abort("it did not answer in time")
            raise
        if self._dialling.get(session_id) is asyncio.current_task():
            self._sockets[session_id] = socket
        else:
            await socket.aclose()
        return socket

    def _gone(self, session_id: str, socket: Socket) -> None:
        if self._sockets.get(session_id) is socket:
            del self._sockets[session_id]
        self._retired.discard(socket)
        self._on_closed(socket)
