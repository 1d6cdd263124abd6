"""Laws against the reference."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from harness.reference import reference_law

from edge_sdk.decoding.laws import penalised, shaped
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
