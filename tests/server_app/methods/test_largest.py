"""The largest of a wide row, against a sort."""

from __future__ import annotations

import numpy as np
import pytest

from server_app.methods.largest import down_to_the, largest
from server_app.methods.scratch import BLOCK

SIZE = 60 * BLOCK


def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    one_block = np.full(SIZE, 0.5)
    one_block[7 * BLOCK : 7 * BLOCK + 300] = 1 + rng.random(300)
    ties = np.floor(6 * rng.random(SIZE))
    zeros = np.zeros(SIZE)
    zeros[rng.integers(0, SIZE, 10)] = 1
    return {
        "peaked": np.exp(5 * rng.normal(size=SIZE)),
        "all in one block": one_block,
        "ties": ties,
        "flat": np.ones(SIZE),
        "mostly zero": zeros,
        "ascending": np.arange(SIZE) / SIZE,
    }


@pytest.mark.parametrize("name", list(rows()))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_with_and_without_sums_the_order_is_that_of_a_sort(name: str, dtype: type) -> None:
    row = rows()[name].astype(dtype)
    order = np.lexsort((np.arange(SIZE), -row))
    sums = row.reshape(-1, BLOCK).sum(axis=1, dtype=np.float64)
    for count in (1, 2, 16, 59, 60, 61, 500, SIZE):
        assert np.array_equal(largest(row, count), order[:count])
        assert np.array_equal(largest(row, count, sums), order[:count])
        assert np.array_equal(largest(row, count, sums.astype(np.float32)), order[:count])
        kth = row[order[count - 1]]
        assert np.array_equal(down_to_the(row, count), np.flatnonzero(row >= kth))


def test_logits_may_be_negative_where_no_sums_are_given() -> None:
    row = -np.arange(1.0, SIZE + 1)
    row[3] = -np.inf
    assert largest(row, 5).tolist() == [0, 1, 2, 4, 5]
    assert down_to_the(row, 5).tolist() == [0, 1, 2, 4, 5]
