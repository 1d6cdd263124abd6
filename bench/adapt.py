"""Adaptive control against the best fixed setting: `python -m bench.adapt`.

In virtual time (`bench.simulation`), so a slow or busy machine changes nothing. In each cell of
a grid of links, drafts, targets and acceptances, every fixed gamma and window and plain decoding
by the server write the same text as the controller does, which begins knowing nothing but two
exchanges of a handshake. `excess` is the time of the controller over that of the best of
them, less 1. The last line is JSON.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import median
from typing import Annotated, Final

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from bench.program import run
from bench.simulation import Fixed, Run, Simulation, Text, World
from bench.terminal import steps
from edge_sdk.adapt import Controller, Plan
from edge_sdk.text.control import Control

TOKENS: Final = 2000
GAMMAS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64)
WINDOWS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 32)
ROUND_TRIPS: Final = (0.001, 0.005, 0.02, 0.05, 0.1, 0.3)
RATES: Final = (0.1e6, 1e6, 10e6, 300e6)
DRAFTS: Final = (0.002, 0.005, 0.015, 0.04)
TARGETS: Final = (0.025, 0.06)
ACCEPTANCES: Final = (0.2, 0.4, 0.6, 0.8, 0.95)
HEATS: Final = ((200, 1.3), (700, 1.1))  # after so many tokens, what is that far behind is out

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point of the grid. Seconds, bits a second."""

    round_trip: float
    rate: float
    draft: float
    target: float
    acceptance: float

    @property
    def world(self) -> World:
        return World(
            round_trip=self.round_trip,
            up_rate=self.rate,
            down_rate=self.rate,
            draft=self.draft,
            verify=self.target,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the controller and the best fixed setting took in a cell."""

    cell: Cell
    best: Plan
    best_seconds: float
    run: Run

    @property
    def excess(self) -> float:
        return self.run.seconds / self.best_seconds - 1


def grid() -> list[Cell]:
    """All cells."""
    return [
        Cell(round_trip=r, rate=b, draft=d, target=t, acceptance=a)
        for r, b, d, t, a in product(ROUND_TRIPS, RATES, DRAFTS, TARGETS, ACCEPTANCES)
    ]


def even_text(acceptance: float, *, tokens: int = TOKENS, seed: int = 0) -> Text:
    """A text whose every draft is accepted with the same chance; confidence says nothing."""
    rng = np.random.default_rng(seed)
    size = tokens + max(GAMMAS)
    accepted = (rng.random(size) < acceptance).tolist()
    return Text(accepted, rng.random(size).tolist())


def settings(gammas: Sequence[int], windows: Sequence[int]) -> Iterator[list[Plan]]:
    """Fixed settings: plain decoding, and for each gamma each window, ascending."""
    yield [Plan(speculate=False, tokens=1 << 30)]
    for gamma in gammas:
        yield [Plan(speculate=True, gamma=gamma, window=window) for window in windows]


def best_fixed(
    worlds: Sequence[tuple[int, World]] | World,
    text: Text,
    *,
    tokens: int = TOKENS,
    gammas: Sequence[int] = GAMMAS,
    windows: Sequence[int] = WINDOWS,
    heats: Sequence[tuple[int, float]] = HEATS,
) -> tuple[Plan, float]:
    """The fastest fixed setting and its seconds.

    All write the first 200 tokens; those more than 30 % behind the fastest are out, and after
    700 tokens those more than 10 % behind. All meet the same luck, so in an even text what is
    out would not have come back; where text or world change, give no `heats`. Larger windows than
    one that is never full are the same setting.
    """
    racing = []
    distances = [min(distance, tokens) for distance, _ in heats] or [tokens]
    for plans in settings(gammas, windows):
        for plan in plans:
            simulation = Simulation(worlds, text, Fixed(plan), length=tokens)
            racing.append((plan, simulation))
            if simulation.go(distances[0]).peak < plan.window:
                break
    for distance, slack in heats:
        # A stream is written in one go; its speed speaks for it.
        speeds = [simulation.go(min(distance, tokens)).rate for _, simulation in racing]
        least = max(speeds) / slack
        racing = [entry for entry, speed in zip(racing, speeds, strict=True) if speed >= least]
    finals = [(simulation.go().seconds, index) for index, (_, simulation) in enumerate(racing)]
    seconds, index = min(finals)
    return racing[index][0], seconds


def controlled(
    worlds: Sequence[tuple[int, World]] | World,
    text: Text,
    *,
    tokens: int = TOKENS,
    pilot: Control | None = None,
) -> Run:
    """The same text under a controller that has seen a handshake, or another pilot."""
    if pilot is None:
        pilot = controller = Controller()
        first = worlds if isinstance(worlds, World) else worlds[0][1]
        for up_bytes, down_bytes in ((300, 700), (1800, 250)):
            moving = 8 * up_bytes / first.up_rate + 8 * down_bytes / first.down_rate
            controller.exchange(
                seconds=first.round_trip + moving, up_bytes=up_bytes, down_bytes=down_bytes
            )
    return Simulation(worlds, text, pilot, length=tokens).go()


def compare(cell: Cell, *, tokens: int = TOKENS, seed: int = 0) -> Outcome:
    """One cell."""
    text = even_text(cell.acceptance, tokens=tokens, seed=seed)
    best, seconds = best_fixed(cell.world, text, tokens=tokens)
    return Outcome(cell, best, seconds, controlled(cell.world, text, tokens=tokens))


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def adapt(
    cells: Annotated[int, typer.Option(min=1, help="Cells, drawn at random; 960 is all.")] = 960,
    seed: Annotated[int, typer.Option(min=0, help="Of the texts and the cells drawn.")] = 0,
    tokens: Annotated[int, typer.Option(min=300, help="Tokens of a text.")] = TOKENS,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    rows: Annotated[int, typer.Option(min=0, help="Worst cells to show.")] = 12,
    quick: Annotated[bool, typer.Option("--quick", help="60 cells.")] = False,
) -> None:
    """Compare adaptive control with the best fixed setting over the grid."""
    chosen = grid()
    random.Random(seed).shuffle(chosen)
    chosen = chosen[: 60 if quick else cells]
    outcomes = []
    with ProcessPoolExecutor(jobs) as pool, steps("cells", len(chosen)) as advance:
        try:
            for outcome in pool.map(partial(compare, tokens=tokens, seed=seed), chosen):
                outcomes.append(outcome)
                advance()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    outcomes.sort(key=lambda outcome: -outcome.excess)
    console = Console()
    console.print(_by_acceptance(outcomes))
    if rows:
        console.print(_worst(outcomes[:rows]))
    excesses = [outcome.excess for outcome in outcomes]
    figures = {
        "cells": len(outcomes),
        "tokens": tokens,
        "worst_excess": round(excesses[0], 4),
        "median_excess": round(median(excesses), 4),
        "within_5_percent": round(sum(e <= 0.05 for e in excesses) / len(excesses), 4),
    }
    print(json.dumps(figures))


def _by_acceptance(outcomes: Sequence[Outcome]) -> Table:
    table = Table("a", *(f"RTT {r * 1e3:g}" for r in ROUND_TRIPS))
    table.title = "time over the best fixed setting: median / worst"
    for acceptance in ACCEPTANCES:
        row = []
        for round_trip in ROUND_TRIPS:
            here = [
                outcome.excess
                for outcome in outcomes
                if (outcome.cell.acceptance, outcome.cell.round_trip) == (acceptance, round_trip)
            ]
            row.append(f"{median(here):.1%}/{max(here):.1%}" if here else "-")
        table.add_row(f"{acceptance:g}", *row)
    return table


def _worst(outcomes: Sequence[Outcome]) -> Table:
    table = Table("excess", "RTT", "Mbit/s", "draft", "target", "a", "best fixed", "streamed")
    table.title = "worst cells; times in ms, a is the acceptance"
    for outcome in outcomes:
        cell = outcome.cell
        table.add_row(
            f"{outcome.excess:+.1%}",
            f"{cell.round_trip * 1e3:g}",
            f"{cell.rate / 1e6:g}",
            f"{cell.draft * 1e3:g}",
            f"{cell.target * 1e3:g}",
            f"{cell.acceptance:g}",
            _named(outcome.best),
            f"{outcome.run.streamed / outcome.run.tokens:.0%}",
        )
    return table


def _named(plan: Plan) -> str:
    return f"{plan.gamma} x {plan.window}" if plan.speculate else "alone"


if __name__ == "__main__":
    sys.exit(run(app, "bench.adapt"))
