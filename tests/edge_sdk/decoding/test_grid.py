"""Draft laws on the grid of 2**-24."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_sdk.decoding.grid import GRID, GridLaw, grid_law, on_grid
from edge_sdk.decoding.laws import shaped
from edge_sdk.errors import ModelError
from edge_sdk.sampling import Sampling


@given(st.integers(1, 3000), st.floats(0, 40), st.integers(0, 2**32 - 1))
def test_the_grid_sums_to_one_and_stays_close(size: int, spread: float, seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=size) * spread
    law = shaped(logits.astype(np.float32), Sampling())
    counts = on_grid(law)
    assert counts.sum(dtype=np.int64) == GRID
    assert counts.min() >= 0
    assert counts[int(law.argmax())] > 0
    off = np.abs(counts - law * GRID)
    off[int(law.argmax())] = 0
    assert off.max(initial=0) <= 1


@pytest.mark.parametrize("size", [3, 7, 46_145, 100_003, 262_144, 1 << 20])
@pytest.mark.parametrize("tilt", [0.0, 1e-9, 1e-3])
def test_flat_laws_have_a_grid_too(size: int, tilt: float) -> None:
    law = np.full(size, 1 / size)
    law[size // 2] *= 1 + tilt
    law /= law.sum()
    counts = on_grid(law)
    assert counts.sum(dtype=np.int64) == GRID
    assert counts.min() > 0
    assert np.abs(counts / GRID - law).sum() / 2 < 0.02


def test_certain_laws_have_one_point() -> None:
    counts = on_grid(shaped(np.array([0.0, 5.0, 1.0], np.float32), Sampling(temperature=0)))
    assert counts.tolist() == [0, GRID, 0]


@given(
    st.integers(1, 3000),
    st.floats(0, 40),
    st.sampled_from([0.0, 0.01, 0.3, 0.7, 1.0, 2.0]),
    st.integers(0, 2**32 - 1),
)
def test_a_law_made_on_the_grid_is_the_law_rounded(
    size: int, spread: float, temperature: float, seed: int
) -> None:
    logits = (np.random.default_rng(seed).normal(size=size) * spread).astype(np.float32)
    logits[1::5] = -np.inf
    before, sampling = logits.copy(), Sampling(temperature=temperature, repetition_penalty=1.3)
    for seen in (None, np.arange(0, size, 3)):
        counts = grid_law(logits, sampling, seen).everywhere()
        law = shaped(logits, sampling, seen)
        assert counts.dtype == np.int32
        assert counts.sum(dtype=np.int64) == GRID
        assert counts.min() >= 0
        assert (counts[law == 0] == 0).all()
        assert np.abs(counts / GRID - law).sum() / 2 < 1e-4 + size / GRID
    assert (logits == before).all()


@pytest.mark.parametrize("size", [7, 46_145, 1 << 20])
def test_flat_laws_are_made_on_the_grid(size: int) -> None:
    counts = grid_law(np.zeros(size, np.float32), Sampling()).everywhere()
    assert counts.sum(dtype=np.int64) == GRID
    assert counts.min() > 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_makes_no_law(value: float) -> None:
    logits = np.array([0.0, value, 1.0], dtype=np.float32)
    with pytest.raises(ModelError, match=re.escape(f"contain {value}")):
        grid_law(logits, Sampling())


def test_a_law_is_held_where_it_is_not_0() -> None:
    logits = np.full(50_000, -30.0, dtype=np.float32)
    logits[[3, 700, 49_999]] = [1.0, 2.0, -15.5]
    law = grid_law(logits, Sampling(temperature=1))
    assert law.ranks.tolist() == [3, 700]
    assert law.counts.sum() == GRID
    assert law.numerator(700) == law.counts[1]
    assert [law.numerator(rank) for rank in (0, 4, 49_999)] == [0, 0, 0]
    asked = np.array([-1, 700, 2, 3, 49_999])
    assert law.numerators(asked).tolist() == [0, law.counts[1], 0, law.counts[0], 0]
    everywhere = law.everywhere()
    assert (everywhere == on_grid(shaped(logits, Sampling(temperature=1)))).mean() > 0.9999
    again = GridLaw.of_counts(everywhere)
    assert (again.ranks.tolist(), again.size) == ([3, 700], 50_000)


@given(st.floats(0.05, 3), st.floats(0.1, 12), st.integers(0, 2**32 - 1))
def test_what_is_left_out_would_round_to_0(temperature: float, spread: float, seed: int) -> None:
    logits = (np.random.default_rng(seed).normal(size=2000) * spread).astype(np.float32)
    law = grid_law(logits, Sampling(temperature=temperature))
    left = np.setdiff1d(np.arange(2000), law.ranks)
    whole = shaped(logits, Sampling(temperature=temperature))
    assert whole[left].max(initial=0.0) < 0.5001 / GRID
