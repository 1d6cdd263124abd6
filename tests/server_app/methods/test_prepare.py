"""What is computed ahead for a step is what would be computed when asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edge_sdk.decoding.coins import PrfCoins, Side
from edge_sdk.errors import ServerFault
from edge_sdk.sampling import Sampling
from server_app.methods.base import Pair, Proposal
from server_app.methods.hybrid import HeadTailServer
from server_app.methods.prepare import prepare
from server_app.methods.rows import Rows

MASKED = torch.tensor([3, 4, 900])
SAMPLINGS = [
    Sampling(temperature=0.7),
    Sampling(temperature=0),
    Sampling(top_k=5),
    Sampling(repetition_penalty=1.2),
    Sampling(temperature=1.3),
]


def step(dtype: torch.dtype, size: int = 1100) -> list[Rows]:
    rng = np.random.default_rng(3)
    made = []
    for count, sampling in zip((3, 3, 2, 2, 4), SAMPLINGS, strict=True):
        logits = torch.from_numpy(4 * rng.normal(size=(count, size))).to(dtype)
        drafted = rng.integers(5, 800, count - 1).tolist()
        made.append(Rows(logits, sampling, MASKED, seen=[8, 9], drafted=drafted))
    return made


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_prepared_rows_answer_as_the_others(dtype: torch.dtype) -> None:
    bound = 1e-12 if dtype == torch.float64 else 1e-6
    prepared, lazy = step(dtype), step(dtype)
    prepare(prepared, on_host=True)
    for ready, plain in zip(prepared, lazy, strict=True):
        for row in range(len(ready)):
            assert ready.argmax(row) == plain.argmax(row)
            tokens = [*ready.drafted[row : row + 1], 3, ready.argmax(row), 700]
            for token in tokens:
                assert ready.probability(row, token) == pytest.approx(
                    plain.probability(row, token), rel=bound, abs=0
                )
            largest = ready.weights(row).largest(9)
            assert np.array_equal(largest, plain.weights(row).largest(9))
            assert ready.weights(row).total == pytest.approx(plain.weights(row).total, rel=bound)
            assert np.allclose(ready.law_array(row), plain.law_array(row), rtol=bound, atol=0)


def test_a_prepared_step_is_judged_alike() -> None:
    pair = Pair("pair", np.arange(5, 800))
    prepared, lazy = step(torch.bfloat16), step(torch.bfloat16)
    prepare(prepared, on_host=True)
    accepted = 0
    for seed in range(40):
        verdicts = []
        for rows in (prepared[4], lazy[4]):
            half = HeadTailServer(PrfCoins(seed=seed, side=Side.SERVER), "f16")
            proposal = Proposal(rows.drafted, [1] * len(rows.drafted))
            count = 0
            while count < 3 and half.accepts(rows, count, proposal, position=count):
                count += 1
            token = half.settle(rows, count, position=count)
            verdicts.append((count, token, half.reject(rows, 1, proposal, pair, position=9)))
            accepted += count
        assert verdicts[0][:2] == verdicts[1][:2]
    assert accepted > 0


def test_on_the_cpu_nothing_is_computed_ahead() -> None:
    made = step(torch.float32)
    made[0].logits[0] = torch.nan
    prepare(made)
    prepare([])
    made[0].logits[0] = 0.0
    assert made[0].probability(0, 5) == pytest.approx(1 / (1100 - 3))


def test_a_broken_row_fails_where_it_is_looked_at() -> None:
    made = step(torch.bfloat16)
    made[0].logits[1, 5] = torch.nan
    made[1].logits[0, 5] = torch.nan
    prepare(made, on_host=True)
    assert made[0].probability(0, 6) >= 0
    with pytest.raises(ServerFault, match="logits"):
        made[0].probability(1, 6)
    with pytest.raises(ServerFault, match="logits"):
        made[1].argmax(0)
    assert made[4].probability(0, 6) >= 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_same_values_come_over_in_one_copy() -> None:
    prepared, lazy = step(torch.bfloat16), step(torch.bfloat16)
    moved = [
        Rows(each.logits.cuda(), each.sampling, MASKED.cuda(), seen=[8, 9], drafted=each.drafted)
        for each in prepared
    ]
    prepare(moved)
    for ready, plain in zip(moved, lazy, strict=True):
        for row in range(len(ready)):
            assert ready.argmax(row) == plain.argmax(row)
            for token in (*ready.drafted[row : row + 1], 700):
                assert ready.probability(row, token) == pytest.approx(
                    plain.probability(row, token), rel=1e-6, abs=0
                )
            assert np.allclose(
                ready.law(row).cpu().numpy(), plain.law_array(row), rtol=1e-6, atol=0
            )
