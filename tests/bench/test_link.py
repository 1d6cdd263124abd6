"""The proxy shapes and breaks a link as it says."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from bench.link import Fault, LinkProxy, Shape, fault_at, random_faults


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that sends back what it gets, and what each of its connections got."""
    got: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        index = len(got)
        got.append(b"")
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while data := await reader.read(65536):
                got[index] += data
                writer.write(data)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], got
    finally:
        server.close()


async def trip(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes = b"x"
) -> float:
    begin = time.perf_counter()
    writer.write(data)
    assert await reader.readexactly(len(data)) == data
    return time.perf_counter() - begin


async def test_delay_is_there_each_way_and_once_more_for_a_connection() -> None:
    async with echo() as (port, _), LinkProxy(port, shape=Shape(delay=0.05)) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        first = await trip(reader, writer)
        later = min([await trip(reader, writer) for _ in range(3)])
        writer.close()
    assert 0.1 <= later < first
    assert first >= 0.2


async def test_the_rate_bounds_all_connections_together() -> None:
    shape = Shape(up_rate=4e6, down_rate=8e6)
    async with echo() as (port, _), LinkProxy(port, shape=shape) as proxy:
        streams = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(2)]
        begin = time.perf_counter()
        await asyncio.gather(*(trip(*stream, bytes(50_000)) for stream in streams))
        # 0.8 Mbit up and as much down, which begins while the rest still goes up.
        assert time.perf_counter() - begin >= 0.2
        for _, writer in streams:
            writer.close()
        assert proxy.bytes == {"up": 100_000, "down": 100_000}


async def test_jitter_keeps_the_order() -> None:
    async with echo() as (port, _), LinkProxy(port, shape=Shape(jitter=0.02)) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        for number in range(40):
            writer.write(bytes((number,)))
            await asyncio.sleep(0.001)
        assert await reader.readexactly(40) == bytes(range(40))
        writer.close()


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.TRUNCATE])
async def test_a_connection_that_breaks(fault: Fault) -> None:
    faults = fault_at(1, fault, direction="down")
    async with echo() as (port, got), LinkProxy(port, faults=faults) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        await trip(reader, writer)
        writer.write(b"0123456789")
        if fault is Fault.CUT:
            with pytest.raises(ConnectionResetError):
                await reader.read()
        else:
            assert await reader.read() == b"01234"
        writer.close()
        assert got == [b"x0123456789"]
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        await trip(reader, writer)
        writer.close()
        assert proxy.faults == {fault: 1}
        assert proxy.connections == 2


async def test_stalls_and_duplicates() -> None:
    def faults(direction: str) -> Fault | None:
        return Fault.DUPLICATE if direction == "up" else Fault.STALL

    async with echo() as (port, got), LinkProxy(port, faults=faults, stall_seconds=0.1) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await trip(reader, writer, b"ab") >= 0.1
        await trip(reader, writer, b"cd")
        await asyncio.sleep(0.1)
        writer.close()
    assert sorted(got) == [b"ab", b"abcd", b"abcd"]


async def test_cutting_all() -> None:
    async with echo() as (port, _), LinkProxy(port) as proxy:
        streams = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(3)]
        for reader, writer in streams:
            await trip(reader, writer)
        proxy.cut()
        for reader, writer in streams:
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()


def test_random_faults_follow_their_seed_and_chances() -> None:
    def drawn(seed: int) -> list[Fault | None]:
        decide = random_faults(seed, cut=0.1, truncate=0.1, stall=0.2, duplicate=0.1)
        return [decide("up") for _ in range(2000)]

    assert drawn(1) == drawn(1) != drawn(2)
    found = drawn(3)
    for fault, chance in (
        (Fault.CUT, 0.1),
        (Fault.TRUNCATE, 0.1),
        (Fault.STALL, 0.2),
        (Fault.DUPLICATE, 0.1),
        (None, 0.5),
    ):
        assert found.count(fault) / 2000 == pytest.approx(chance, abs=0.04)
