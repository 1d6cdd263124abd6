"""A TCP proxy that makes loopback a worse link: delay, rate, jitter, and faults."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Literal, Self

Direction = Literal["up", "down"]

_PIECE: Final = 65536  # most bytes that are passed on at once
_SLOT_SECONDS: Final = 0.002  # of a limited rate, a piece takes no longer than this
_SMALLEST_PIECE: Final = 1460
_WAITING_PIECES: Final = 256
_REMEMBERED: Final = 1 << 20  # bytes of a connection that can be sent twice
_ECHO_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Shape:
    """Attributes:
    delay: seconds one way; a new connection takes a round trip more.
    jitter: most further seconds of a piece; pieces keep their order.
    up_rate, down_rate: bits a second, of all connections together; None: no limit.
    """

    delay: float = 0.0
    jitter: float = 0.0
    up_rate: float | None = None
    down_rate: float | None = None


class Fault(StrEnum):
    """What happens to a piece of data and its connection."""

    CUT = "cut"  # both sides see a reset; the piece is lost
    TRUNCATE = "truncate"  # half of the piece arrives, then both sides see an orderly end
    STALL = "stall"  # nothing goes this way for a while
    DUPLICATE = "duplicate"  # a second connection brings all that was sent up once more


Faults = Callable[[Direction], Fault | None]  # asked for every piece, in the order of arrival


def random_faults(
    seed: int,
    *,
    cut: float = 0.0,
    truncate: float = 0.0,
    stall: float = 0.0,
    duplicate: float = 0.0,
) -> Faults:
    """Faults with these chances a piece."""
    coins = random.Random(seed)
    chances = ((cut, Fault.CUT), (truncate, Fault.TRUNCATE), (stall, Fault.STALL))

    def decide(direction: Direction) -> Fault | None:
        draw = coins.random()
        for chance, fault in (*chances, (duplicate, Fault.DUPLICATE)):
            if draw < chance:
                return fault
            draw -= chance
        return None

    return decide


def fault_at(number: int, fault: Fault, *, direction: Direction) -> Faults:
    """One fault, at the piece of that number (from 0) in that direction."""
    seen = 0

    def decide(way: Direction) -> Fault | None:
        nonlocal seen
        if way != direction:
            return None
        seen += 1
        return fault if seen - 1 == number else None

    return decide


class LinkProxy:
    """Listens on loopback and passes everything on to a port there.

    Args:
        port: where the server listens.
        shape: what the link is like.
        faults: what goes wrong.
        stall_seconds: how long a stall takes.

    Attributes:
        connections: accepted so far.
        bytes: by direction, as they came in.
        faults: how often each happened.
    """

    def __init__(
        self,
        port: int,
        *,
        shape: Shape | None = None,
        faults: Faults = lambda direction: None,
        stall_seconds: float = 0.2,
        seed: int = 0,
    ) -> None:
        self._server_port = port
        self.shape = shape or Shape()
        self._decide = faults
        self._stall_seconds = stall_seconds
        self._coins = random.Random(seed)
        self._free_at: dict[Direction, float] = {"up": 0.0, "down": 0.0}
        self._listener: asyncio.Server | None = None
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self.port = 0
        self.connections = 0
        self.bytes: Counter[Direction] = Counter()
        self.faults: Counter[Fault] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._listener is not None
        self._listener.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._serving, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection now."""
        for connection in list(self._open):
            connection.cut()

    def due(self, direction: Direction, size: int, last: float) -> float:
        """When a piece that came in now arrives, not before the one that arrives at `last`."""
        shape = self.shape
        now = asyncio.get_running_loop().time()
        rate = shape.up_rate if direction == "up" else shape.down_rate
        sent = now
        if rate is not None:
            sent = max(now, self._free_at[direction]) + 8 * size / rate
            self._free_at[direction] = sent
        return max(last, sent + shape.delay + shape.jitter * self._coins.random())

    def piece(self, direction: Direction) -> int:
        """Most bytes of a piece."""
        rate = self.shape.up_rate if direction == "up" else self.shape.down_rate
        if rate is None:
            return _PIECE
        return int(min(_PIECE, max(_SMALLEST_PIECE, rate * _SLOT_SECONDS / 8)))

    async def fault(self, direction: Direction) -> Fault | None:
        """What befalls the next piece; a stall is over when this returns."""
        fault = self._decide(direction)
        if fault is not None:
            self.faults[fault] += 1
        if fault is Fault.STALL:
            await asyncio.sleep(self._stall_seconds)
        return fault

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run beside the rest, until it is done or the proxy ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        connection = _Connection(self, reader, writer)
        self._open.add(connection)
        try:
            await connection.run(self._server_port)
        except (OSError, asyncio.CancelledError):
            connection.cut()
        finally:
            self._open.discard(connection)

    async def echo(self, sent: bytes) -> None:
        """Bring `sent` to the server over a connection of its own; the answers are lost."""
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            try:
                writer.write(sent)
                async with asyncio.timeout(_ECHO_SECONDS):
                    while await reader.read(_PIECE):
                        pass
            finally:
                writer.transport.abort()


class _Connection:
    def __init__(
        self, proxy: LinkProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._sent = bytearray()
        self._server: asyncio.StreamWriter | None = None

    async def run(self, port: int) -> None:
        server_reader, self._server = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.TaskGroup() as group:
                self._pump(group, "up", self._reader, self._server)
                self._pump(group, "down", server_reader, self._writer)
        except* OSError:
            self.cut()
        finally:
            self._server.close()
            self._writer.close()

    def cut(self) -> None:
        for writer in (self._writer, self._server):
            if writer is None:
                continue
            raw = writer.get_extra_info("socket")
            if raw is not None and raw.fileno() >= 0:
                # Closing without lingering sends a reset.
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def _pump(
        self,
        group: asyncio.TaskGroup,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_WAITING_PIECES)
        group.create_task(self._take_in(direction, reader, pieces))
        group.create_task(self._hand_on(writer, pieces))

    async def _take_in(
        self,
        direction: Direction,
        reader: asyncio.StreamReader,
        pieces: asyncio.Queue[tuple[float, bytes]],
    ) -> None:
        proxy, last = self._proxy, 0.0
        if direction == "up":
            await asyncio.sleep(2 * proxy.shape.delay)
        while True:
            data = await reader.read(proxy.piece(direction))
            fault = await proxy.fault(direction) if data else None
            if fault is Fault.CUT:
                self.cut()
                await pieces.put((last, b""))
                return
            if direction == "up" and len(self._sent) < _REMEMBERED:
                self._sent += data
            if fault is Fault.DUPLICATE:
                proxy.start(proxy.echo(bytes(self._sent)))
            if fault is Fault.TRUNCATE:
                data = data[: len(data) // 2]
            proxy.bytes[direction] += len(data)
            last = proxy.due(direction, len(data), last)
            if data:
                await pieces.put((last, data))
            if fault is Fault.TRUNCATE or not data:
                await pieces.put((last, b""))
                return

    async def _hand_on(
        self, writer: asyncio.StreamWriter, pieces: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await pieces.get()
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            if not data:
                # An end on one side is the end of both, as where a middlebox gives up.
                self._end()
                return
            writer.write(data)
            await writer.drain()

    def _end(self) -> None:
        for writer in (self._writer, self._server):
            if writer is not None:
                writer.close()
