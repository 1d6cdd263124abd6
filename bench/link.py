"""What a round costs over HTTP and over a WebSocket, behind a link of given round-trip time.

Needs neither models nor a network: `cosd serve` with a toy target, and a proxy in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from bench.link_proxy import Fault, LinkProxy, Shape, fault_at, random_faults
from bench.program import run
from bench.server import ServerProcess
from bench.terminal import steps
from edge_sdk.sampling import Sampling
from edge_sdk.transport import Exchange, HttpTransport, Transport, transport_named
from edge_sdk.vocab import Alignment, Vocabulary
from edge_sdk.wire import PROTOCOL_VERSION, Generation, Open, Prompt, RegisterPair, Verdict, Verify
from edge_sdk.wire.packing import pack_draft

__all__ = ["Fault", "LinkProxy", "Shape", "fault_at", "random_faults"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_DRAFT: Final = 3  # tokens a block
_BURST: Final = 4  # blocks in flight together
_WARM: Final = 3
_MAX_TOKENS: Final = 1 << 16
_WAYS: Final = ("http", "websocket")
_ECHOED: Final = 24  # bytes


@dataclass(slots=True)
class Measured:
    """Attributes:
    single: seconds of each round that went alone.
    burst: seconds of each group of rounds that went together.
    exchanges: what the single ones cost.
    """

    single: list[float] = field(default_factory=list)
    burst: list[float] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)


class _Echo:
    """Bytes that come back through a proxy of the same shape: what the link alone takes, the
    proxy's own slowness included."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._stack = contextlib.AsyncExitStack()
        self.seconds: list[float] = []

    async def __aenter__(self) -> Self:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self._stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        proxy = await self._stack.enter_async_context(LinkProxy(port, shape=self._shape))
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        self._stack.callback(self._writer.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def trip(self) -> None:
        begin = time.perf_counter()
        self._writer.write(bytes(_ECHOED))
        await self._reader.readexactly(_ECHOED)
        self.seconds.append(time.perf_counter() - begin)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(writer):
            while data := await reader.read(_ECHOED):
                writer.write(data)


class _Rounds:
    """Verifies of arbitrary drafts over one transport, in one session after another."""

    def __init__(self, transport: Transport, alignment: Alignment) -> None:
        self._transport = transport
        self._alignment = alignment
        self._ranks = random.Random(1)
        self._session = ""
        self._sequence = self._base = 0
        self.measured = Measured()

    async def single(self) -> None:
        await self._opened()
        begin = time.perf_counter()
        verdict, exchange = await self._transport.verify(self._session, self._block())
        self.measured.single.append(time.perf_counter() - begin)
        self.measured.exchanges.append(exchange)
        self._take([verdict])

    async def burst(self) -> None:
        await self._opened()
        blocks: list[Verify] = []
        for index in range(_BURST):
            parent = blocks[-1].sequence if blocks else None
            blocks.append(self._block(index, parent=parent, more=index < _BURST - 1))
        begin = time.perf_counter()
        replies = await asyncio.gather(
            *(self._transport.verify(self._session, block) for block in blocks)
        )
        self.measured.burst.append(time.perf_counter() - begin)
        self._take([verdict for verdict, _ in replies])

    async def _opened(self) -> None:
        if self._session:
            return
        self._session = secrets.token_hex(16)
        self._sequence = self._base = 0
        generation = Generation("greedy", Sampling(temperature=0), _MAX_TOKENS, 1)
        message = Open(
            PROTOCOL_VERSION, self._alignment.pair_id, Prompt(text="the sea"), generation
        )
        await self._transport.open(self._session, message)

    def _block(self, ahead: int = 0, *, parent: int | None = None, more: bool = False) -> Verify:
        size = len(self._alignment)
        ranks = np.array([self._ranks.randrange(size) for _ in range(_DRAFT)])
        return Verify(
            self._sequence + ahead,
            self._base + _DRAFT * ahead,
            pack_draft(ranks, None, size=size),
            parent=parent,
            more=more,
        )

    def _take(self, verdicts: Sequence[Verdict]) -> None:
        self._sequence += len(verdicts)
        for verdict in verdicts:
            if not verdict.stale:
                self._base += verdict.accepted + (verdict.settled is not None)
            if verdict.finish:
                self._session = ""


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def link(
    rtt: Annotated[list[int] | None, typer.Option(min=0, help="Round-trip times in ms.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds a way and round-trip time.")] = 60,
    rate: Annotated[float, typer.Option(min=0.01, help="Mbit/s each way.")] = 100.0,
    quick: Annotated[bool, typer.Option(help="20 rounds, round-trip times 0 and 50.")] = False,
) -> None:
    """Compare the cost of a round over HTTP and over a WebSocket."""
    times = rtt or ([0, 50] if quick else [0, 20, 50, 100])
    rounds = min(rounds, 20) if quick else rounds
    with ServerProcess("toy:1") as server:
        server.wait_ready()
        figures = asyncio.run(_all(server, times, rounds, rate * 1e6))
    _print(figures)
    print(json.dumps(_summary(figures)))


async def _all(
    server: ServerProcess, times: Sequence[int], rounds: int, rate: float
) -> dict[int, dict[str, Measured]]:
    port = urlsplit(server.url).port or 0
    figures = {}
    with steps("rounds", len(times) * (rounds + _WARM)) as step:
        for milliseconds in times:
            shape = Shape(delay=milliseconds / 2000, up_rate=rate, down_rate=rate)
            async with LinkProxy(port, shape=shape) as proxy, _Echo(shape) as echo:
                transports = {
                    way: transport_named(way, HttpTransport(proxy.url, api_key=server.api_key))
                    for way in _WAYS
                }
                alignment = await _alignment(transports["http"])
                ways = {way: _Rounds(by, alignment) for way, by in transports.items()}
                for number in range(rounds + _WARM):
                    # In turn, so that a busy machine slows both.
                    await echo.trip()
                    for way in ways.values():
                        await way.single()
                        await way.burst()
                        if number < _WARM:
                            way.measured = Measured()
                    step()
                for transport in transports.values():
                    await transport.aclose()
            figures[milliseconds] = {name: way.measured for name, way in ways.items()}
            figures[milliseconds]["echo"] = Measured(single=echo.seconds[_WARM:])
    return figures


async def _alignment(transport: Transport) -> Alignment:
    """V_C of the target with itself."""
    card = await transport.card()
    data = await transport.vocabulary(card["models"][0]["vocabulary_fingerprint"])
    vocabulary = Vocabulary.from_bytes(data)
    alignment = Alignment.between(target=vocabulary, draft=vocabulary)
    await transport.register_pair(RegisterPair(alignment.target_fingerprint, alignment.bitmap))
    return alignment


def _median_ms(seconds: Sequence[float]) -> float:
    return round(1e3 * statistics.median(seconds), 2)


def _print(figures: dict[int, dict[str, Measured]]) -> None:
    table = Table(
        "RTT ms", "way", "round ms", "of it server", f"{_BURST} rounds ms", "wire up", "wire down",
        title="a round, median",
    )  # fmt: skip
    for milliseconds, ways in figures.items():
        table.add_row(str(milliseconds), "echo", f"{_median_ms(ways['echo'].single):.2f}")
        for way in _WAYS:
            measured = ways[way]
            up, down = _wire_bytes(measured)
            single, burst = _median_ms(measured.single), _median_ms(measured.burst)
            server = _median_ms([exchange.server_seconds for exchange in measured.exchanges])
            cells = (f"{cell:.2f}" for cell in (single, server, burst))
            table.add_row(str(milliseconds), way, *cells, f"{up} B", f"{down} B")
    Console().print(table)


def _wire_bytes(measured: Measured) -> tuple[int, int]:
    up = statistics.median(exchange.wire_up_bytes for exchange in measured.exchanges)
    down = statistics.median(exchange.wire_down_bytes for exchange in measured.exchanges)
    return round(up), round(down)


def _summary(figures: dict[int, dict[str, Measured]]) -> dict[str, object]:
    """Medians by round-trip time; `cost_ratio` is WebSocket over HTTP, of rounds alone."""
    summary: dict[str, object] = {
        "echo_ms": {str(rtt): _median_ms(ways["echo"].single) for rtt, ways in figures.items()}
    }
    for way in _WAYS:
        summary[f"{way}_round_ms"] = {
            str(rtt): _median_ms(ways[way].single) for rtt, ways in figures.items()
        }
        summary[f"{way}_burst_ms"] = {
            str(rtt): _median_ms(ways[way].burst) for rtt, ways in figures.items()
        }
        up, down = _wire_bytes(next(iter(figures.values()))[way])
        summary[f"{way}_wire_bytes"] = {"up": up, "down": down}
    summary["cost_ratio"] = {
        str(rtt): round(
            statistics.median(ways["websocket"].single) / statistics.median(ways["http"].single), 3
        )
        for rtt, ways in figures.items()
    }
    return summary


if __name__ == "__main__":
    sys.exit(run(app, "bench.link"))
