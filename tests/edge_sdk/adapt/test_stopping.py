"""What ending a block early is worth."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.adapt.model import Costs
from edge_sdk.adapt.stopping import stopped_rate, worth_another

COSTS = Costs(
    draft=0.01,
    verify=0.05,
    verify_row=0.001,
    round_trip=0.02,
    up=0.001,
    up_token=0.0,
    down=0.001,
    overhead=0.001,
    alone=0.05,
)


def test_another_token_pays_until_its_chance_is_below_its_cost() -> None:
    # At 20 tokens a second a token that costs 11 ms must come with a chance of 0.22.
    assert worth_another(1.0, 0.23, 20.0, COSTS)
    assert not worth_another(1.0, 0.21, 20.0, COSTS)
    assert not worth_another(0.5, 0.4, 20.0, COSTS)


def test_where_all_tokens_are_alike_it_is_the_best_fixed_length() -> None:
    chance = 0.8
    lengths = np.arange(1, 65)
    tokens = (1 - chance ** (lengths + 1)) / (1 - chance)
    best = float((tokens / (0.073 + lengths * 0.011)).max())
    alike = np.full((4, 64), chance)
    assert stopped_rate(alike, mean=chance, rate=0.9 * best, costs=COSTS) == pytest.approx(
        best, rel=0.01
    )


def test_where_tokens_differ_it_is_more() -> None:
    rng = np.random.default_rng(0)
    mixed = np.where(rng.random((64, 64)) < 0.75, 0.99, 0.3)
    mean = float(mixed.mean())
    lengths = np.arange(1, 65)
    tokens = (1 - mean ** (lengths + 1)) / (1 - mean)
    best = float((tokens / (0.073 + lengths * 0.011)).max())
    assert stopped_rate(mixed, mean=mean, rate=best, costs=COSTS) > 1.05 * best
