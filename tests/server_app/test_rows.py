"""Target laws against the reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from harness.reference import reference_law

from edge_sdk.sampling import Sampling
from server_app.methods.rows import Rows

CASES = [
    Sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=penalty,
    )
    for temperature, top_k, top_p, min_p, penalty in itertools.product(
        (0.0, 0.001, 0.7, 100.0), (0, 1, 3, 9000), (1.0, 0.6, 1e-9), (0.0, 0.2, 1.0), (1.0, 1.7)
    )
]
SEEN, DRAFTED, MASKED = [1, 4, 4], [6, 2], [0, 7]


def logits_of(size: int, dtype: torch.dtype) -> torch.Tensor:
    values = 3 * np.random.default_rng(size).normal(size=(3, size))
    return torch.from_numpy(values).to(dtype)


def rows_of(logits: torch.Tensor, sampling: Sampling) -> Rows:
    return Rows(logits, sampling, torch.tensor(MASKED), seen=SEEN, drafted=DRAFTED)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [9, 2500])
def test_every_transform_is_the_references(size: int, dtype: torch.dtype) -> None:
    logits = logits_of(size, dtype)
    before = logits.clone()
    # In bfloat16 2500 logits tie, and ties may be cut anywhere.
    ties = dtype == torch.bfloat16
    for sampling in CASES if size < 100 else CASES[::7]:
        if ties and (sampling.top_p < 1 or sampling.temperature <= 0.001):
            continue
        rows = rows_of(logits, sampling)
        for row in range(3):
            seen = [*SEEN, *DRAFTED[:row]]
            wide = logits[row].to(torch.float64).numpy()
            reference = reference_law(wide, sampling, MASKED, seen)
            law = rows.law(row)
            assert law.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            bound = 1e-12 if dtype == torch.float64 else 2e-5
            if dtype != torch.float64 and 0 < sampling.temperature < 0.1:
                bound = 2e-2
            assert np.abs(law.numpy() - reference).max() < bound, (sampling, row)
            assert float(law[MASKED].sum()) == 0
            for token in (int(reference.argmax()), 3, 6, 7):
                assert rows.probability(row, token) == pytest.approx(reference[token], abs=bound)
            assert (
                rows.argmax(row)
                == int(
                    reference_law(
                        wide,
                        Sampling(temperature=0, repetition_penalty=sampling.repetition_penalty),
                        MASKED,
                        seen,
                    ).argmax()
                )
                or ties
            )
            assert np.array_equal(rows.law_array(row), law.numpy())
    assert torch.equal(logits, before)
    assert len(rows_of(logits, Sampling())) == 3


def test_a_nucleus_past_the_usual_head() -> None:
    logits = torch.zeros(1, 10_000, dtype=torch.float64)
    logits += torch.linspace(0, 1e-3, 10_000)
    law = Rows(logits, Sampling(top_p=0.9), torch.tensor([], dtype=torch.int64)).law(0)
    reference = reference_law(logits[0].numpy(), Sampling(top_p=0.9), (), ())
    assert np.abs(law.numpy() - reference).max() < 1e-12
    assert int((law > 0).sum()) == int((reference > 0).sum())
    assert 8900 < int((law > 0).sum()) < 9100


def test_equal_logits_go_to_the_lowest_id() -> None:
    rows = Rows(torch.zeros(1, 6), Sampling(temperature=0), torch.tensor([0]))
    assert rows.argmax(0) == 1
    assert rows.law(0).tolist() == [0, 1, 0, 0, 0, 0]
