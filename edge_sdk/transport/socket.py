"""One WebSocket: requests into slots, replies out of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from edge_sdk.errors import ConnectionFailed, CosdError, InvalidRequest, MessageTooLarge
from edge_sdk.errors import ProtocolError as Broken
from edge_sdk.transport.http import IDLE_SECONDS
from edge_sdk.transport.refusal import told
from edge_sdk.wire.frames import (
    SLOTS,
    Close,
    Down,
    Up,
    frame,
    read_failure,
    read_reply,
    split,
)

_WAITING_TOKENS: Final = 1024  # of a stream that nobody reads; then the server has to wait
_TOO_BIG: Final = 1009  # RFC 6455
_NOT_OURS: Final = frozenset({1002, 1003, 1007, 1008, 1010, Close.MALFORMED})


class _Call:
    """A request in a slot.

    Attributes:
        tokens: of a stream; None closes it.
        limit: most bytes of a reply.
        left: nobody waits any more, but the slot is not free yet.
    """

    def __init__(self, limit: int, *, streams: bool) -> None:
        self.reply: asyncio.Future[tuple[bytes, float]] = asyncio.get_running_loop().create_future()
        self.limit = limit
        self.tokens: asyncio.Queue[bytes | None] | None = (
            asyncio.Queue(_WAITING_TOKENS) if streams else None
        )
        self.left = False

    def finish(self, answer: tuple[bytes, float] | CosdError) -> None:
        if not self.reply.done():
            if isinstance(answer, CosdError):
                self.reply.set_exception(answer)
                # Told to whoever waits, which may be nobody.
                self.reply.exception()
            else:
                self.reply.set_result(answer)
        if self.tokens is not None and not self.tokens.full():
            self.tokens.put_nowait(None)


class Socket:
    """The client's side of a WebSocket.

    Args:
        connection: upgraded.
        base_url, path: of the server and of the upgrade, for errors.
        on_closed: called once, when nothing can be asked over it any more.

    Attributes:
        asked, answered: requests over it, and those that were answered.
    """

    def __init__(
        self,
        connection: ClientConnection,
        *,
        base_url: str,
        path: str,
        on_closed: Callable[[Socket], None],
        idle: float = IDLE_SECONDS,
    ) -> None:
        self._connection = connection
        self._base_url = base_url
        self._path = path
        self._on_closed = on_closed
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, _Call] = {}
        self._free = list(range(SLOTS))
        self._slots = asyncio.Semaphore(SLOTS)
        self._error: CosdError | None = None
        self._retired = False
        self._farewells: set[asyncio.Task[None]] = set()
        self._used = self._loop.time()
        self._timer = self._loop.call_later(idle, self._look_if_idle)
        self.asked = 0
        self.answered = 0
        self._reader = asyncio.create_task(self._read())

    @property
    def open(self) -> bool:
        """A request can be sent."""
        return self._error is None

    async def probe(self, seconds: float) -> None:
        """Find out that frames come through.

        Raises:
            TimeoutError: they do not, in that time.
            ConnectionClosed: the other side is gone.
        """
        async with asyncio.timeout(seconds):
            await (await self._connection.ping())

    async def request(self, kind: Up, body: bytes, *, limit: int) -> tuple[bytes, float]:
        """Body and server seconds of the reply to a request.

        Raises:
            ConnectionFailed: the socket broke before the reply.
            ProtocolError: the server broke the protocol, or the reply is over `limit`.
            CosdError: the server refused.
        """
        slot, call = await self._placed(_Call(limit, streams=False))
        try:
            await self._send(frame(kind, slot, body))
            return await call.reply
        except asyncio.CancelledError:
            self._leave(slot, call)
            raise

    async def stream(self, body: bytes, *, silence: float) -> AsyncGenerator[bytes, None]:
        """Bodies of the tokens that answer a `Generate`.

        Raises:
            TimeoutError: nothing came for `silence` seconds.
            Others: as `request`.
        """
        slot, call = await self._placed(_Call(0, streams=True))
        assert call.tokens is not None
        try:
            await self._send(frame(Up.GENERATE, slot, body))
            while not (call.reply.done() and call.tokens.empty()):
                async with asyncio.timeout(silence):
                    token = await call.tokens.get()
                if token is not None:
                    yield token
            await call.reply
        finally:
            self._leave(slot, call)

    async def aclose(self) -> None:
        """Close it; what waits fails. Idempotent."""
        self._fail(ConnectionFailed(f"the connection to {self._base_url} was closed"))
        with contextlib.suppress(ConnectionClosed, OSError):
            await self._connection.close(Close.NORMAL)
        # When it is idle, one of these is this very task.
        await asyncio.wait({self._reader, *self._farewells} - {asyncio.current_task()})

    def retire(self) -> None:
        """Close it in the background as soon as nothing waits for an answer over it."""
        self._retired = True
        if not self._calls and self._error is None:
            task = asyncio.create_task(self.aclose())
            self._farewells.add(task)
            task.add_done_callback(self._farewells.discard)

    def abort(self, reason: str) -> None:
        """Drop it without a word, since it does not answer."""
        self._fail(ConnectionFailed(f"the connection to {self._base_url} was dropped: {reason}"))
        self._connection.transport.abort()

    async def _placed(self, call: _Call) -> tuple[int, _Call]:
        await self._slots.acquire()
        if self._error is not None:
            self._slots.release()
            raise self._again()
        slot = self._free.pop()
        self.asked += 1
        self._calls[slot] = call
        self._used = self._loop.time()
        return slot, call

    async def _send(self, data: bytes) -> None:
        # The reader learns of it too and tells every call.
        with contextlib.suppress(ConnectionClosed):
            await self._connection.send(data)

    def _leave(self, slot: int, call: _Call) -> None:
        if call.left or self._calls.get(slot) is not call:
            return
        call.left = True
        while call.tokens is not None and not call.tokens.empty():
            call.tokens.get_nowait()
        if self._error is None:
            task = asyncio.create_task(self._send(frame(Up.CANCEL, slot)))
            self._farewells.add(task)
            task.add_done_callback(self._farewells.discard)

    async def _read(self) -> None:
        try:
            while True:
                data = await self._connection.recv()
                if isinstance(data, str):
                    raise Broken("it sent a text frame")
                await self._take(data)
        except ConnectionClosed as closed:
            self._fail(self._closed(closed))
        except (Broken, InvalidRequest) as error:
            self._fail(
                Broken(f"{self._base_url} does not speak this protocol over {self._path}: {error}")
            )
        finally:
            self._fail(ConnectionFailed(f"the connection to {self._base_url} was closed"))
            self._connection.transport.abort()

    async def _take(self, data: bytes) -> None:
        kind, slot = split(data)
        call = self._calls.get(slot)
        if call is None:
            raise Broken(f"it answers slot {slot}, in which nothing was asked")
        self._used = self._loop.time()
        if kind == Down.TOKEN and call.tokens is not None:
            self.answered += 1
            if not call.left:
                await call.tokens.put(data[1:])
            return
        answer: tuple[bytes, float] | CosdError
        if kind == Down.REPLY and call.tokens is None:
            answer = read_reply(data)
            self.answered += 1
            if len(answer[0]) > call.limit:
                answer = Broken(f"the server's reply is over the limit of {call.limit} bytes")
        elif kind == Down.ERROR:
            answer = told(self._base_url, self._path, read_failure(data))
            self.answered += 1
        elif kind == Down.END and (call.left or call.tokens is not None):
            answer = (b"", 0.0)
            self.answered += 1
        else:
            raise Broken(f"it answers slot {slot} with a frame of kind {kind}")
        del self._calls[slot]
        self._free.append(slot)
        self._slots.release()
        call.finish(answer)
        if self._retired:
            self.retire()

    def _closed(self, closed: ConnectionClosed) -> CosdError:
        sent, got = closed.sent, closed.rcvd
        if sent is not None and (got is None or not closed.rcvd_then_sent):
            if sent.code == _TOO_BIG:
                return Broken(f"a frame of {self._base_url} is over the limit ({sent.reason})")
            if sent.code in _NOT_OURS:
                return Broken(f"{self._base_url} breaks the WebSocket protocol ({sent.reason})")
        if got is None:
            reason = str(closed.__cause__ or "it ended without a word")
            return ConnectionFailed(f"the connection to {self._base_url} broke ({reason})")
        said = f"{got.code} {got.reason}".strip()
        if got.code == _TOO_BIG:
            return MessageTooLarge(f"a message is over the limit of {self._base_url} ({said})")
        if got.code in _NOT_OURS:
            return Broken(f"{self._base_url} does not take what this SDK sends ({said})")
        return ConnectionFailed(f"{self._base_url} closed the connection ({said})")

    def _fail(self, error: CosdError) -> None:
        if self._error is not None:
            return
        self._error = error
        self._timer.cancel()
        for call in self._calls.values():
            call.finish(self._again())
        self._calls.clear()
        # Whoever waits for a slot is told as well.
        for _ in range(SLOTS):
            self._slots.release()
        self._on_closed(self)

    def _again(self) -> CosdError:
        """The error once more: one that is raised in several tasks would mix their traces."""
        assert self._error is not None
        return type(self._error)(self._error.message, field=self._error.field)

    def _look_if_idle(self) -> None:
        quiet = self._loop.time() - self._used
        if self._calls or quiet < self._idle:
            wait = self._idle if self._calls else self._idle - quiet
            self._timer = self._loop.call_later(wait, self._look_if_idle)
            return
        task = asyncio.create_task(self.aclose())
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)
