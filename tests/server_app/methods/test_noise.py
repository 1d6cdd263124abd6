"""The torch pass over the shared noise chooses as the numpy one and as the full computation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edge_sdk.decoding.noise import full_argmax, gumbel_argmax, row_key, steps
from server_app.methods.noise import SharedNoise, _steps, argmax_on_device

GEMMA = 262_144


def keys_of(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 2**64, size, dtype=np.uint64)


def laws(rng: np.random.Generator, size: int) -> list[np.ndarray]:
    flat = np.full(size, 1 / size)
    peaked = np.exp(-25 * rng.random(size))
    sparse = rng.random(size) * (rng.random(size) < 0.05)
    sparse[rng.integers(size)] = 1.0
    tiny = np.exp(-rng.uniform(0, 700, size))
    certain = np.zeros(size)
    certain[rng.integers(size)] = 1
    return [flat, peaked / peaked.sum(), sparse / sparse.sum(), tiny / tiny.sum(), certain]


def in_torch(law: np.ndarray, keys: np.ndarray, row: np.uint64) -> int:
    tensor = torch.from_numpy(keys.view(np.int64))
    return argmax_on_device(torch.from_numpy(law), tensor, keys, row)


def in_full(law: np.ndarray, keys: np.ndarray, row: np.uint64) -> int:
    held = np.flatnonzero(law > 0)
    return int(held[full_argmax(law[held], keys[held], row)])


def test_steps_are_the_same_bits() -> None:
    keys = keys_of(5000)
    for position in range(20):
        row = row_key(2**64 - 3, position)
        in_numpy = steps(keys, row).astype(np.int64)
        assert (_steps(torch.from_numpy(keys.view(np.int64)), row).numpy() == in_numpy).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ten_thousand_rows_are_chosen_alike(dtype: type) -> None:
    rng = np.random.default_rng(1)
    keys = keys_of(700)
    position = 0
    for _ in range(1000):
        for law in laws(rng, 700):
            row = row_key(5, position)
            position += 1
            chosen = in_full(law.astype(dtype), keys, row)
            assert gumbel_argmax(law.astype(dtype), keys, row) == chosen
            assert in_torch(law.astype(dtype), keys, row) == chosen


def test_rows_as_wide_as_gemmas() -> None:
    rng = np.random.default_rng(2)
    keys = keys_of(GEMMA)
    for position in range(6):
        for law in laws(rng, GEMMA):
            row = row_key(6, position)
            chosen = in_full(law.astype(np.float32), keys, row)
            assert gumbel_argmax(law.astype(np.float32), keys, row) == chosen
            assert in_torch(law.astype(np.float32), keys, row) == chosen


def test_lengths_that_fill_no_whole_chunk() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 16_383, 16_384, 16_385, 40_000):
        keys = keys_of(size)
        for position in range(10):
            law = rng.dirichlet(np.full(size, 0.1)) if size > 1 else np.ones(1)
            row = row_key(7, position)
            assert gumbel_argmax(law, keys, row) == in_full(law, keys, row)


def test_laws_on_the_host_take_the_numpy_pass() -> None:
    keys = keys_of(300)
    law = np.random.default_rng(4).dirichlet(np.ones(300))
    noise = SharedNoise(keys)
    for position in range(50):
        row = row_key(8, position)
        assert noise.argmax(torch.from_numpy(law), row) == gumbel_argmax(law, keys, row)
