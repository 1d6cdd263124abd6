"""An index found by blocks is the one a running sum over all weights finds."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.decoding.coins import Key, PrfCoins, Purpose, Side
from edge_sdk.decoding.cumulative import Counts, RunningSums, SummedArray


def laws(size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    sparse = rng.random(size) * (rng.random(size) < 0.02)
    sparse[size // 2] = 1.0
    one = np.zeros(size)
    one[size - 1] = 3.0
    return [rng.random(size), np.exp(-30 * rng.random(size)), sparse, one, np.ones(size)]


@pytest.mark.parametrize("size", [1, 5, 511, 512, 513, 46_145])
def test_every_point_finds_the_running_sums_index(size: int) -> None:
    rng = np.random.default_rng(1)
    for law in laws(size):
        for weights in (law, law.astype(np.float32)):
            summed = SummedArray(weights)
            sums = np.cumsum(weights, dtype=np.float64)
            assert summed.total == pytest.approx(sums[-1], rel=1e-12)
            for point in rng.random(200) * sums[-1]:
                index = summed.outcome(float(point))
                assert weights[index] > 0
                # Rounding may move a boundary by the last bits of the total.
                slack = 1e-12 * sums[-1]
                assert sums[index] - weights[index] - slack <= point <= sums[index] + slack


def test_a_boundary_belongs_to_the_next_index() -> None:
    weights = np.array([0.25, 0.0, 0.5, 0.25])
    summed = SummedArray(weights)
    assert [summed.outcome(point) for point in (0.0, 0.2, 0.25, 0.7, 0.75, 0.99)] == [
        0,
        0,
        2,
        2,
        3,
        3,
    ]


@pytest.mark.parametrize("size", [4, 2000])
def test_no_point_steps_past_the_last_weight_or_onto_a_zero(size: int) -> None:
    weights = np.zeros(size)
    weights[1 : size // 2] = 0.1
    for held in (SummedArray(weights), SummedArray(weights.astype(np.float32))):
        assert held.outcome(0.0) == 1
        assert held.outcome(held.total) == size // 2 - 1
        assert held.outcome(held.total * (1 + 1e-15)) == size // 2 - 1


def test_what_lies_into_a_weight() -> None:
    assert RunningSums(np.array([1.0, 2.0])).find(1.5) == (1, 0.5)
    assert RunningSums(np.array([1.0, 2.0])).find(0.5) == (0, 0.5)


def test_coins_draw_from_whatever_finds_an_index() -> None:
    coins = PrfCoins(seed=3, side=Side.SERVER)
    weights = np.random.default_rng(2).random(3000)
    for position in range(50):
        key = Key(position, Purpose.SETTLE)
        assert coins.categorical(key, weights) == coins.categorical(key, SummedArray(weights))


@pytest.mark.parametrize("seed", range(20))
def test_counts_find_what_the_running_sum_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 50, size=int(rng.integers(1, 3000))).astype(np.int32)
    counts[rng.random(len(counts)) < 0.5] = 0
    counts[rng.integers(len(counts))] += 1
    held, plain = Counts(counts), np.cumsum(counts)
    assert held.total == plain[-1]
    assert (np.asarray(held) == counts).all()
    for point in [0.0, *(rng.random(50) * held.total), np.nextafter(held.total, 0), held.total]:
        index = held.outcome(float(point))
        assert counts[index] > 0
        if point < held.total:
            assert index == int((plain <= point).sum())
