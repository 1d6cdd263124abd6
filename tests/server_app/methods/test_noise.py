"""The torch pass over the shared noise chooses as the numpy one and as the full computation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edge_sdk.decoding.noise import full_argmax, gumbel, gumbel_argmax, row_key, steps
from edge_sdk.sampling import Sampling
from server_app.methods.noise import SharedNoise, _steps, argmax_on_device
from server_app.methods.rows import Rows

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


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=0.3),  # few ids can win
        Sampling(temperature=0.05),
        Sampling(temperature=0.7, top_k=20),
        Sampling(top_p=0.8),
        Sampling(temperature=0.0),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_rows_are_chosen_from_as_their_laws_written_out(
    sampling: Sampling, dtype: torch.dtype
) -> None:
    rng = np.random.default_rng(9)
    noise = SharedNoise(keys_of(4000))
    for position in range(60):
        logits = torch.from_numpy(5 * rng.normal(size=(1, 4000))).to(dtype)
        rows = Rows(logits, sampling, torch.tensor([3, 2000]))
        row = row_key(9, position)
        chosen = noise.choose(rows, 0, row)
        assert chosen == in_full(np.asarray(rows.weights(0)), keys_of(4000), row)
        assert chosen == noise.argmax(rows.law(0), row)


def test_an_unlikely_id_wins_where_its_noise_is_large_enough() -> None:
    """Noise that is as large as it can be, for ids that are nearly as unlikely as can win."""
    keys = keys_of(600)
    row = row_key(1, 1)
    keys[77] = _key_of_largest_noise(row)
    law = np.full(600, 1e-30)
    law[5] = 1.0
    best = -np.log(1 - 2.0**-53)
    for factor, winner in ((0.5, 5), (2.0, 77)):
        law[77] = factor * best / float(np.exp(-gumbel(steps(keys[5:6], row)))[0])
        assert SharedNoise(keys).argmax(torch.from_numpy(law), row) == winner
        assert in_full(law, keys, row) == winner


def _key_of_largest_noise(row: np.uint64) -> np.uint64:
    """The finaliser taken backwards from all ones."""
    x = (1 << 64) - 1
    for factor in (None, 0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD):
        if factor is not None:
            x = x * pow(factor, -1, 1 << 64) % (1 << 64)
        x ^= x >> 33
    key = np.uint64(x) ^ row
    assert int(steps(np.array([key]), row)[0]) == (1 << 53) - 1
    return np.uint64(key)


def test_laws_on_the_host_take_the_numpy_pass() -> None:
    keys = keys_of(300)
    law = np.random.default_rng(4).dirichlet(np.ones(300))
    noise = SharedNoise(keys)
    for position in range(50):
        row = row_key(8, position)
        assert noise.argmax(torch.from_numpy(law), row) == gumbel_argmax(law, keys, row)
