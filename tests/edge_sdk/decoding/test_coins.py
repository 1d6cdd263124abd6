"""Coins: functions of their key, uniform, independent between keys and sides."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from edge_sdk.decoding.coins import Key, PrfCoins, Purpose, Side

SEEDS = 40_000
KNOWN = (5611408083285851, 7508505743433737)
SERVER = PrfCoins(seed=7, side=Side.SERVER)
FIRST = Key(3, Purpose.ACCEPT)


def uniforms(side: Side = Side.SERVER, key: Key = FIRST) -> np.ndarray:
    return np.array([PrfCoins(seed=seed, side=side).uniform(key) for seed in range(SEEDS)])


def test_a_coin_is_a_function_of_its_key() -> None:
    again = PrfCoins(seed=7, side=Side.SERVER)
    keys = [
        Key(position, purpose, block)
        for position, purpose, block in itertools.product((0, 1, 2**53 - 1), Purpose, (0, 1, 9))
    ]
    values = [SERVER.integer(key) for key in keys]
    assert values == [again.integer(key) for key in reversed(keys)][::-1]
    others = [
        coins.integer(key)
        for coins in (PrfCoins(seed=7, side=Side.DEVICE), PrfCoins(seed=8, side=Side.SERVER))
        for key in keys
    ]
    assert len({*values, *others}) == 3 * len(keys)


def test_known_values_do_not_change() -> None:
    # The specification in docs/randomness.md: text of a seed must survive an update.
    assert PrfCoins(seed=0, side=Side.SERVER).integer(Key(0, Purpose.DRAFT)) == KNOWN[0]
    assert PrfCoins(seed=2**64 - 1, side=Side.DEVICE).integer(Key(5, Purpose.SETTLE, 2)) == KNOWN[1]


@pytest.mark.parametrize("side", Side)
def test_uniforms_are_uniform(side: Side) -> None:
    values = uniforms(side)
    assert 0 < values.min() < 1e-3
    assert 1 - 1e-3 < values.max() < 1
    counts = np.histogram(values, bins=64, range=(0, 1))[0]
    expected = SEEDS / 64
    assert chi(counts, np.full(64, expected)) < 5
    # Kolmogorov-Smirnov at 1e-4.
    steps = np.arange(1, SEEDS + 1) / SEEDS
    assert np.abs(np.sort(values) - steps).max() < 2.23 / math.sqrt(SEEDS)


@pytest.mark.parametrize(
    "other",
    [
        Key(4, Purpose.ACCEPT),
        Key(3, Purpose.SETTLE),
        Key(3, Purpose.ACCEPT, 1),
    ],
)
def test_coins_of_other_keys_are_independent(other: Key) -> None:
    assert abs(np.corrcoef(uniforms(), uniforms(key=other))[0, 1]) < 4 / math.sqrt(SEEDS)
    assert abs(np.corrcoef(uniforms(), uniforms(Side.DEVICE, other))[0, 1]) < 4 / math.sqrt(SEEDS)


def test_coins_of_the_two_sides_are_independent() -> None:
    assert abs(np.corrcoef(uniforms(), uniforms(Side.DEVICE))[0, 1]) < 4 / math.sqrt(SEEDS)


@pytest.mark.parametrize("probability", [0.0, 1e-3, 0.3, 0.5, 0.999, 1.0])
def test_bernoulli_comes_up_as_often_as_asked(probability: float) -> None:
    keys = [Key(position, Purpose.ACCEPT) for position in range(20_000)]
    hits = sum(SERVER.bernoulli(key, probability) for key in keys)
    spread = math.sqrt(20_000 * probability * (1 - probability))
    assert abs(hits - 20_000 * probability) <= 4.5 * spread
    assert SERVER.bernoulli(keys[0], 2.0)
    assert not SERVER.bernoulli(keys[0], -1.0)


def test_what_is_certain_is_never_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrfCoins, "integer", lambda *_: 2**53 - 1)
    assert SERVER.uniform(Key(0, Purpose.ACCEPT)) < 1
    assert SERVER.bernoulli(Key(0, Purpose.ACCEPT), 1.0)
    assert SERVER.categorical(Key(0, Purpose.SETTLE), np.array([0.2, 0.7, 0.1, 0.0])) == 2
    monkeypatch.setattr(PrfCoins, "integer", lambda *_: 0)
    assert SERVER.uniform(Key(0, Purpose.ACCEPT)) > 0
    assert SERVER.categorical(Key(0, Purpose.SETTLE), np.array([0.0, 0.0, 0.7, 0.3])) == 2


@pytest.mark.parametrize(
    "weights", [[1.0], [0.0, 3.0, 1.0, 0.0], [1e-300, 2e-300], [1e300, 3e300], [0.1] * 10]
)
def test_categorical_follows_the_weights(weights: list[float]) -> None:
    array = np.array(weights)
    counts = np.zeros(len(weights))
    for position in range(20_000):
        counts[SERVER.categorical(Key(position, Purpose.SETTLE), array)] += 1
    expected = 20_000 * array / array.sum()
    assert counts[expected == 0].sum() == 0
    assert chi(counts[expected > 0], expected[expected > 0]) < 5


@pytest.mark.parametrize("weights", [[0.0, 0.0], [float("nan")], [float("inf"), 1.0]])
def test_weights_without_a_law_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights sum to"):
        SERVER.categorical(Key(0, Purpose.SETTLE), np.array(weights))


def chi(counts: np.ndarray, expected: np.ndarray) -> float:
    """Standard deviations of chi-square above its mean; sqrt(2 chi2) is nearly normal."""
    freedom = len(counts) - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return 0.0 if freedom < 1 else math.sqrt(2 * statistic) - math.sqrt(2 * freedom - 1)
