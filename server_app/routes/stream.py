"""The messages of a session over one WebSocket (docs/wire.md)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from edge_sdk.errors import CosdError, InvalidRequest, ServerFault, Unauthorized
from edge_sdk.wire import Ask, Extend, Generate, Truncate, Verify, decode, encode, limits
from edge_sdk.wire.frames import SLOTS, SUBPROTOCOL, Close, Down, Up, failure, frame, reply, split
from edge_sdk.wire.limits import MAX_WINDOW
from server_app import problems
from server_app.auth import Keyring
from server_app.host import Host
from server_app.observability.facts import current_facts
from server_app.routes.sessions import checked_session_id

log = logging.getLogger(__name__)

router = APIRouter(prefix="/v1")

_MOST_TASKS: Final = 2 * SLOTS  # a slot is free again before its reply is on the way
_CLOSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of one WebSocket.

    Attributes:
        idle: seconds without a request after which it is closed; the SDK leaves after 60.
        slow: seconds in which a client must make room for a frame.
        held_bytes: of requests in progress, past which no more is read.
    """

    idle: float = 75.0
    slow: float = 120.0
    held_bytes: int = 2 * limits.MAX_LAWS_BODY


class _Closed(Exception):
    """The socket has to be closed.

    Args:
        code: of the close frame.
        reason: why, in a few words.
    """

    def __init__(self, code: Close, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@router.websocket("/sessions/{session_id}/stream")
async def stream(websocket: WebSocket, session_id: str) -> None:
    """Verify, ask, truncate, extend and generate, several at a time."""
    state = websocket.app.state
    host: Host = state.host
    keyring: Keyring = state.keyring
    try:
        owner = keyring.owner(websocket.headers.get("authorization"))
        current_facts().owner = owner
        checked_session_id(session_id)
        _check_upgrade(websocket)
    except CosdError as error:
        current_facts().fail(error.code)
        await websocket.send_denial_response(problems.reply(error))
        return
    await websocket.accept(subprotocol=SUBPROTOCOL)
    bounds = getattr(state, "stream_limits", None) or StreamLimits(idle=state.settings.keep_alive)
    await _Line(websocket, host, owner, session_id, bounds).run()


def _check_upgrade(websocket: WebSocket) -> None:
    # A browser tells whose page it is, and a page must not reach a server that is open to its
    # user's machine alone. No other client sends this header.
    if "origin" in websocket.headers:
        raise Unauthorized("pages in a browser are not served")
    if SUBPROTOCOL not in websocket.scope.get("subprotocols", ()):
        raise InvalidRequest(
            f"offer the subprotocol {SUBPROTOCOL!r}, which this server speaks",
            field="sec-websocket-protocol",
        )


class _Line:
    """One WebSocket: a task reads, and each request has one of its own."""

    def __init__(
        self,
        websocket: WebSocket,
        host: Host,
        owner: str,
        session_id: str,
        bounds: StreamLimits,
    ) -> None:
        self._websocket = websocket
        self._host = host
        self._of = (owner, session_id)
        self._bounds = bounds
        self._in_slot: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._given_up: set[asyncio.Task[None]] = set()
        self._idle_cancels = 0
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._sending = asyncio.Lock()
        self._end: asyncio.Future[_Closed | None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve until either side has enough; what is in progress then is cancelled."""
        reading = asyncio.create_task(self._read())
        try:
            closed = await self._end
        finally:
            reading.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(reading, *self._tasks, return_exceptions=True)
        if closed is not None:
            with contextlib.suppress(TimeoutError, RuntimeError, OSError, WebSocketDisconnect):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._websocket.close(closed.code, closed.reason)

    def _over(self, closed: _Closed | None) -> None:
        if not self._end.done():
            self._end.set_result(closed)

    async def _read(self) -> None:
        try:
            while True:
                data = await self._next_frame()
                if data is None:
                    self._over(None)
                    return
                self._take(data)
                # Frames that are there already are read without waiting: others get a turn.
                await asyncio.sleep(0)
                while self._full:
                    self._room.clear()
                    await self._room.wait()
        except _Closed as closed:
            self._over(closed)
        except Exception:
            self._over(None)
            raise

    async def _next_frame(self) -> bytes | None:
        while True:
            try:
                async with asyncio.timeout(self._bounds.idle):
                    message = await self._websocket.receive()
                break
            except TimeoutError:
                if not self._tasks:
                    raise _Closed(Close.IDLE, "nothing was asked for a while") from None
        if message["type"] == "websocket.disconnect":
            return None
        data: bytes | None = message.get("bytes")
        if data is None:
            raise _Closed(Close.TEXT, "messages are binary frames")
        return data

    @property
    def _full(self) -> bool:
        return len(self._tasks) >= _MOST_TASKS or self._held_bytes > self._bounds.held_bytes

    def _take(self, data: bytes) -> None:
        if not data:
            raise _Closed(Close.MALFORMED, "a frame is empty")
        kind, slot = split(data)
        if kind == Up.CANCEL:
            task = self._in_slot.get(slot)
            # Without a request its reply is on the way already; that cannot happen often.
            if task is not None and task not in self._given_up:
                self._given_up.add(task)
                self._idle_cancels = 0
                task.cancel()
                return
            self._idle_cancels += 1
            if self._idle_cancels > 4 * MAX_WINDOW:
                raise _Closed(Close.MALFORMED, "nothing is left to cancel")
            return
        if kind not in _ANSWERS and kind != Up.GENERATE:
            raise _Closed(Close.MALFORMED, f"kind {kind} does not exist")
        if slot in self._in_slot:
            raise _Closed(Close.MALFORMED, f"slot {slot} is in use")
        self._held_bytes += len(data)
        task = asyncio.create_task(self._answer(kind, slot, data[1:]))
        self._in_slot[slot] = task
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._given_up.discard(task)
            self._free(slot, task)
            self._held_bytes -= len(data)
            self._room.set()

        task.add_done_callback(done)

    def _free(self, slot: int, task: asyncio.Task[Any] | None) -> None:
        if self._in_slot.get(slot) is task:
            del self._in_slot[slot]

    async def _answer(self, kind: int, slot: int, body: bytes) -> None:
        task = asyncio.current_task()
        try:
            answer = await self._carried_out(kind, slot, body)
        except CosdError as error:
            current_facts().fail(error.code)
            answer = failure(slot, error)
        except asyncio.CancelledError:
            if task is None or task not in self._given_up or self._end.done():
                raise
            task.uncancel()
            answer = frame(Down.END, slot)
        except _Closed as closed:
            self._over(closed)
            return
        except Exception:
            log.exception("a request over a WebSocket failed")
            fault = ServerFault("the server failed on this request; its log says why")
            current_facts().fail(fault.code)
            answer = failure(slot, fault)
        # Before it is sent: the client may use the slot again as soon as it has read it.
        self._free(slot, task)
        with contextlib.suppress(_Closed):
            await self._send(answer)

    async def _carried_out(self, kind: int, slot: int, body: bytes) -> bytes:
        begin = time.perf_counter()
        if kind == Up.GENERATE:
            message = decode(Generate, body, limit=limits.MAX_ROUND_BODY)
            async with contextlib.aclosing(self._host.generate(*self._of, message)) as tokens:
                async for token in tokens:
                    await self._send(frame(Down.TOKEN, slot, encode(token)))
            return frame(Down.END, slot)
        data, seconds = await _ANSWERS[kind](self._host, self._of, body)
        return reply(slot, data, time.perf_counter() - begin if seconds is None else seconds)

    async def _send(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._bounds.slow), self._sending:
                await self._websocket.send_bytes(data)
        except TimeoutError:
            closed = _Closed(Close.SLOW, "the replies are not read")
            self._over(closed)
            raise closed from None
        except (OSError, RuntimeError, WebSocketDisconnect):
            # Closed in the meantime, which the reader is told as well.
            self._over(None)


_Answer = Callable[[Host, tuple[str, str], bytes], Awaitable[tuple[bytes, float | None]]]


async def _verify(host: Host, of: tuple[str, str], body: bytes) -> tuple[bytes, float | None]:
    message = decode(Verify, body, limit=host.round_limit(*of))
    return await host.verify(*of, message, body)


async def _ask(host: Host, of: tuple[str, str], body: bytes) -> tuple[bytes, float | None]:
    message = decode(Ask, body, limit=limits.MAX_ROUND_BODY)
    return await host.ask(*of, message, body), None


async def _truncate(host: Host, of: tuple[str, str], body: bytes) -> tuple[bytes, float | None]:
    message = decode(Truncate, body, limit=limits.MAX_ROUND_BODY)
    return await host.truncate(*of, message, body), None


async def _extend(host: Host, of: tuple[str, str], body: bytes) -> tuple[bytes, float | None]:
    message = decode(Extend, body, limit=limits.MAX_OPEN_BODY)
    return await host.extend(*of, message, body), None


_ANSWERS: Final[dict[int, _Answer]] = {
    Up.VERIFY: _verify,
    Up.ASK: _ask,
    Up.TRUNCATE: _truncate,
    Up.EXTEND: _extend,
}
