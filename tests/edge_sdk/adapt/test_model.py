"""The model of time against the textbook's formula and against the simulation."""

from __future__ import annotations

import numpy as np
import pytest

from bench.adapt import even_text
from bench.simulation import Fixed, Simulation, World
from edge_sdk.adapt import Plan
from edge_sdk.adapt.model import DEPTH, GAMMAS, WINDOWS, Costs, Grid

TOKENS = 4000


def costs_of(world: World) -> Costs:
    return Costs(
        draft=world.draft,
        verify=world.verify,
        verify_row=world.verify * world.verify_row,
        round_trip=world.round_trip,
        up=8 * world.request_bytes / world.up_rate,
        up_token=8 * world.token_bytes / world.up_rate,
        down=8 * world.reply_bytes / world.down_rate,
        overhead=world.overhead,
        alone=world.verify,
    )


def world(round_trip: float, rate: float, draft: float, target: float) -> World:
    return World(round_trip=round_trip, up_rate=rate, down_rate=rate, draft=draft, verify=target)


def simulated(here: World, acceptance: float, gamma: int, window: int) -> float:
    plan = Plan(speculate=True, gamma=gamma, window=window)
    text = even_text(acceptance, tokens=TOKENS, seed=7)
    return Simulation(here, text, Fixed(plan), length=TOKENS).go().rate


def modelled(here: World, acceptance: float, gamma: int, window: int) -> float:
    rates = Grid().rates(costs_of(here), acceptance ** np.arange(DEPTH + 1.0))
    return float(rates[GAMMAS.index(gamma), WINDOWS.index(window)])


def test_one_block_at_a_time_is_the_textbook() -> None:
    here, a, gamma = world(0.05, 1e6, 0.01, 0.04), 0.7, 4
    costs = costs_of(here)
    expected = (1 - a ** (gamma + 1)) / (1 - a)
    verify = costs.verify + gamma * costs.verify_row
    took = gamma * (costs.draft + costs.up_token) + costs.up + costs.round_trip + verify
    took += costs.down + costs.overhead
    assert modelled(here, a, gamma, 1) == pytest.approx(expected / took)


def test_ahead_without_rejections_is_the_slowest_stage() -> None:
    never = 0.9999999
    drafting, server = world(0.01, 300e6, 0.02, 0.04), world(0.01, 300e6, 0.002, 0.04)
    assert modelled(drafting, never, 8, 8) == pytest.approx(8 / (0.16 + 0.0015), rel=0.02)
    assert modelled(server, never, 4, 8) == pytest.approx(4 / (0.04 * 1.05), rel=0.02)
    far = world(1.0, 300e6, 0.002, 0.04)
    assert modelled(far, never, 4, 2) == pytest.approx(8 / (1.0 + 0.008 + 0.0435), rel=0.05)


@pytest.mark.parametrize("acceptance", [0.4, 0.8, 0.95])
@pytest.mark.parametrize("round_trip", [0.001, 0.05, 0.3])
def test_the_model_is_the_simulation(round_trip: float, acceptance: float) -> None:
    for rate, draft, target in ((1e6, 0.005, 0.06), (300e6, 0.015, 0.025)):
        here = world(round_trip, rate, draft, target)
        for gamma, window, bound in ((2, 1, 0.03), (6, 1, 0.03), (2, 6, 0.09), (5, 3, 0.07)):
            ratio = modelled(here, acceptance, gamma, window)
            ratio /= simulated(here, acceptance, gamma, window)
            assert ratio == pytest.approx(1, abs=bound), (rate, draft, target, gamma, window)
