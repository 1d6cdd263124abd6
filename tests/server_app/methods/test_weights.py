"""Laws of single rows against the same laws written out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from edge_sdk.errors import ServerFault
from edge_sdk.sampling import Sampling
from server_app.methods.rows import Rows
from server_app.methods.weights import ListedWeights, Weights

SIZE = 3000
MASKED = torch.tensor([0, 7, 600, 601, 2999])
SAMPLINGS = [
    Sampling(temperature=0.7),
    Sampling(temperature=0.7, top_k=40),
    Sampling(top_p=0.9),
    Sampling(min_p=0.01),
    Sampling(temperature=0.0),
    Sampling(repetition_penalty=1.3),
]


def logits(dtype: torch.dtype = torch.float64, seed: int = 0, size: int = SIZE) -> torch.Tensor:
    values = 4 * np.random.default_rng(seed).normal(size=(2, size))
    return torch.from_numpy(values).to(dtype)


def rows(sampling: Sampling, given: torch.Tensor) -> Rows:
    return Rows(given, sampling, MASKED, seen=[5, 9, 5], drafted=[11])


def written_out(weights: Weights) -> np.ndarray:
    return np.asarray(weights, dtype=np.float64)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_every_answer_is_that_of_the_law_written_out(
    sampling: Sampling, dtype: torch.dtype
) -> None:
    made = rows(sampling, logits(dtype))
    weights = made.weights(1)
    whole = written_out(weights)
    reduced = weights.without(weights.largest(3))
    rest = whole.copy()
    rest[weights.largest(3)] = 0
    for held, law in ((weights, whole), (reduced, rest)):
        assert held.size == SIZE
        assert np.array_equal(written_out(held), law)
        assert held.total == pytest.approx(law.sum(), rel=1e-12)
        ids = np.array([1, 7, 11, 600, int(law.argmax())])
        assert np.array_equal(held.of(ids), law[ids])
        assert np.allclose(held.p(ids), law[ids] / whole.sum(), rtol=1e-6, atol=0)
        positive = int((law > 0).sum())
        for count in (1, 5, 64, 700, SIZE):
            largest = held.largest(count)
            assert np.array_equal(largest, np.lexsort((np.arange(SIZE), -law))[: len(largest)])
            assert len(largest) == min(count, positive)
        sums = np.cumsum(law)
        points = np.random.default_rng(4).random(50 if held.total > 0 else 0)
        for point in points * held.total:
            index = held.outcome(float(point))
            assert law[index] > 0
            slack = 1e-12 * held.total
            assert sums[index] - law[index] - slack <= point <= sums[index] + slack
    assert np.array_equal(written_out(weights), whole)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_other_rows_in_between_change_nothing(sampling: Sampling) -> None:
    one, other = rows(sampling, logits(torch.bfloat16)), rows(sampling, logits(seed=1))
    weights = one.weights(0)
    law, p = written_out(weights), weights.p(np.arange(SIZE))
    tail = weights.without(weights.largest(2))
    rest = written_out(tail)
    for disturb in (
        lambda: other.weights(1).largest(9),
        lambda: one.weights(1).largest(9),
        lambda: one.raw_log_probability(1, 4),
        lambda: one.argmax(1),
    ):
        disturb()
        assert np.array_equal(written_out(weights), law)
        disturb()
        assert np.array_equal(weights.p(np.arange(SIZE)), p)
        disturb()
        assert np.array_equal(written_out(tail), rest)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_what_is_kept_outlives_the_pass(sampling: Sampling) -> None:
    given = logits(torch.bfloat16)
    weights = rows(sampling, given).weights(0)
    tail = weights.without(weights.largest(2))
    law, rest, normaliser = written_out(weights), written_out(tail), weights.normaliser
    kept, kept_tail = weights.kept(), tail.kept()
    given.zero_()
    assert np.array_equal(written_out(kept), law)
    assert np.array_equal(written_out(kept_tail), rest)
    assert kept.normaliser == normaliser
    assert kept_tail.normaliser == normaliser


def test_what_a_pass_left_is_read_after_it() -> None:
    """A pass runs in inference mode; what the device asks for later is answered outside."""
    for size in (33, 70_001):
        with torch.inference_mode():
            given = logits(torch.bfloat16, size=size)
            weights = Rows(given, Sampling(), torch.tensor([4])).weights(0)
            law, kept = written_out(weights), weights.kept()
            Rows(given, Sampling(), torch.tensor([4])).weights(1)
        assert np.array_equal(written_out(kept), law)
        Rows(logits(torch.bfloat16, size=size), Sampling(), torch.tensor([4])).weights(1)
        with torch.inference_mode():
            assert np.array_equal(written_out(kept), law)


def test_threads_do_not_disturb_each_other() -> None:
    given = [logits(torch.bfloat16, seed) for seed in range(12)]

    def judged(seed: int) -> list[float]:
        found = []
        for _ in range(5):
            weights = rows(SAMPLINGS[seed % len(SAMPLINGS)], given[seed]).weights(0)
            found += [*weights.p(weights.largest(4)), weights.outcome(weights.total / 3)]
        return found

    alone = [judged(seed) for seed in range(12)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(judged, range(12))) == alone


def test_the_normaliser_of_a_wide_row() -> None:
    for seed in range(3):
        given = logits(torch.bfloat16, seed, 262_144)
        weights = rows(Sampling(temperature=0.7), given).weights(0)
        assert weights.normaliser == pytest.approx(weights.total, rel=3e-7)
        assert weights.total == pytest.approx(float(written_out(weights).sum()), rel=1e-12)


def test_accept_test_and_residual_see_the_same_p() -> None:
    for sampling in SAMPLINGS:
        made = rows(sampling, logits(torch.bfloat16))
        for token in (1, 5, 11, made.argmax(1)):
            p = made.probability(1, token)
            assert p == made.weights(1).p(np.array([token]))[0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_logits_that_are_no_numbers_are_named(sampling: Sampling, bad: float) -> None:
    given = logits(torch.bfloat16)
    given[0, 17] = bad
    with pytest.raises(ServerFault, match="logits"):
        rows(sampling, given).probability(0, 3)
    with pytest.raises(ServerFault, match="logits"):
        rows(sampling, given).raw_log_probability(0, 3)
    with pytest.raises(ServerFault, match="logits"):
        rows(sampling, given).argmax(0)


def test_a_list_without_ids_has_no_mass() -> None:
    listed = ListedWeights(np.array([4, 9]), np.array([0.5, 0.25]), size=12)
    empty = listed.without(np.array([4, 9]))
    assert (empty.total, empty.normaliser) == (0.0, 0.75)
    assert listed.p(np.array([3, 4, 9, 11])).tolist() == [0, 2 / 3, 1 / 3, 0]
