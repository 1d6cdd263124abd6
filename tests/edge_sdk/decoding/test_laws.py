"""Draft laws against the reference, and the grid."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from harness.reference import reference_law
from hypothesis import given
from hypothesis import strategies as st

from edge_sdk.decoding.laws import GRID, grid_law, on_grid, penalised, shaped
from edge_sdk.errors import ModelError
from edge_sdk.sampling import Sampling

CASES = [
    Sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=penalty,
    )
    for temperature, top_k, top_p, min_p, penalty in itertools.product(
        (0.0, 0.001, 0.3, 1.0, 100.0), (0, 1, 3, 500), (1.0, 0.6, 1e-9), (0.0, 0.2, 1.0), (1.0, 1.7)
    )
]


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("size", [1, 2, 9, 300])
def test_every_transform_is_the_references(size: int, spread: float) -> None:
    rng = np.random.default_rng(size)
    for sampling in CASES:
        logits = (spread * rng.normal(size=size)).astype(np.float32)
        # No law depends on a constant, and no exponential overflows.
        logits += np.float32(50)
        if size > 4:
            logits[1] = -np.inf
        seen = np.unique(rng.integers(0, size, 3))
        law = shaped(logits, sampling, seen)
        reference = reference_law(logits.astype(np.float64), sampling, (), seen.tolist())
        assert law.dtype == np.float64
        assert law.sum() == pytest.approx(1, abs=1e-12)
        assert (law >= 0).all()
        if spread == 0.0 and (sampling.top_p < 1 or sampling.top_k):
            continue  # ties, which may be cut anywhere
        # float32 logits over the temperature round.
        bound = 2e-5 if sampling.temperature >= 0.3 else 2e-2
        assert np.abs(law - reference).max() < bound, sampling


def test_the_input_is_left_as_it_was() -> None:
    logits = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    for sampling in CASES:
        shaped(logits, sampling, np.array([2]))
    assert logits.tolist() == [1, 2, 3]


def test_the_penalty_pushes_what_was_seen_down() -> None:
    logits = np.array([2.0, -2.0, 0.0, 4.0], dtype=np.float32)
    assert penalised(logits, 2.0, np.array([0, 1, 2])).tolist() == [1, -4, 0, 4]
    assert penalised(logits, 1.0, np.array([0])) is logits
    assert penalised(logits, 2.0, np.array([], dtype=np.int64)) is logits


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers(value: float) -> None:
    row = np.full(4, value, dtype=np.float32)
    for sampling in (Sampling(), Sampling(temperature=0)):
        with pytest.raises(ModelError, match=re.escape(f"contain {value}")):
            shaped(row, sampling)
    one = np.array([0.0, np.nan, 1.0], dtype=np.float32)
    with pytest.raises(ModelError, match="nan"):
        shaped(one, Sampling())


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
        counts, law = grid_law(logits, sampling, seen), shaped(logits, sampling, seen)
        assert counts.dtype == np.int32
        assert counts.sum(dtype=np.int64) == GRID
        assert counts.min() >= 0
        assert (counts[law == 0] == 0).all()
        assert np.abs(counts / GRID - law).sum() / 2 < 1e-4 + size / GRID
    assert (logits == before).all()


@pytest.mark.parametrize("size", [7, 46_145, 1 << 20])
def test_flat_laws_are_made_on_the_grid(size: int) -> None:
    counts = grid_law(np.zeros(size, np.float32), Sampling())
    assert counts.sum(dtype=np.int64) == GRID
    assert counts.min() > 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_makes_no_law(value: float) -> None:
    logits = np.array([0.0, value, 1.0], dtype=np.float32)
    with pytest.raises(ModelError, match=re.escape(f"contain {value}")):
        grid_law(logits, Sampling())
