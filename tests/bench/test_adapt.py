from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from bench.adapt import Cell, best_fixed, even_text
from bench.simulation import Fixed, Simulation, World
from edge_sdk.adapt import Plan

WORLD = World(round_trip=0.1, up_rate=1e6, down_rate=1e6, draft=0.01, verify=0.05, verify_row=0)


def seconds(plan: Plan, chance: float, *, tokens: int = 60, world: World = WORLD) -> float:
    text = even_text(chance, tokens=tokens)
    return Simulation(world, text, Fixed(plan), length=tokens).go().seconds


def test_one_block_at_a_time_adds_up() -> None:
    link = 0.1 + 8 * (280 + 4 * 8) / 1e6 + 8 * 170 / 1e6
    block = 4 * 0.01 + link + 0.05 + 0.0015
    assert seconds(Plan(speculate=True, gamma=4), 1.0) == pytest.approx(12 * block)
    # Nothing is accepted: one token a round, though four were drafted and sent.
    assert seconds(Plan(speculate=True, gamma=4), 0.0, tokens=10) == pytest.approx(
        10 * block, rel=0.05
    )


def test_ahead_hides_the_link() -> None:
    near = World(round_trip=0.001, up_rate=1e9, down_rate=1e9, draft=0.02, verify=0.01)
    far = World(round_trip=0.2, up_rate=1e9, down_rate=1e9, draft=0.02, verify=0.01)
    ahead = Plan(speculate=True, gamma=2, window=16)
    here, there = (seconds(ahead, 1.0, tokens=400, world=w) for w in (near, far))
    assert there - here == pytest.approx(0.2, abs=0.01)
    assert seconds(Plan(speculate=True, gamma=2), 1.0, tokens=400, world=far) > 3 * there


def test_a_window_holds_blocks_back() -> None:
    far = World(round_trip=1.0, up_rate=1e9, down_rate=1e9, draft=0.001, verify=0.001)
    two, four = (
        seconds(Plan(speculate=True, gamma=1, window=w), 1.0, tokens=200, world=far) for w in (2, 4)
    )
    assert two == pytest.approx(2 * four, rel=0.05)


def test_the_server_alone_takes_a_pass_a_token() -> None:
    alone = Plan(speculate=False, tokens=1 << 30)
    assert seconds(alone, 0.5) == pytest.approx(60 * 0.05 + 0.1, rel=0.01)


def test_dropping_the_slow_ones_early_does_not_change_the_best() -> None:
    for acceptance, round_trip in ((0.8, 0.05), (0.6, 0.005), (0.95, 0.3)):
        cell = Cell(
            round_trip=round_trip, rate=10e6, draft=0.005, target=0.06, acceptance=acceptance
        )
        text = even_text(acceptance)
        few = (1, 2, 4, 6, 8, 16)
        raced = best_fixed(cell.world, text, gammas=few, windows=(1, 2, 4))
        assert raced == best_fixed(cell.world, text, gammas=few, windows=(1, 2, 4), heats=())


def test_the_program_ends_with_figures(
    program: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = program("bench.adapt", "--cells", "3", "--tokens", "400", "--rows", "1")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["cells"] == 3
    assert figures["worst_excess"] >= figures["median_excess"]
