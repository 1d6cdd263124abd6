"""The shared noise, and the shortcut over it."""

from __future__ import annotations

import hashlib
import math
import struct

import numpy as np
import pytest

from edge_sdk.decoding.noise import gumbel, gumbel_argmax, row_key, steps, token_keys
from edge_sdk.draft.toy_text import toy_vocabulary
from edge_sdk.vocab import TokenRole

SIZES = [1, 2, 50, 3000]
ROWS = 60


def keys_of(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 2**64, size, dtype=np.uint64)


def rows(kind: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """Laws of very different shapes."""
    if kind == "flat":
        return np.full(size, 1 / size)
    if kind == "random":
        law = rng.dirichlet(np.ones(size))
    elif kind == "peaked":
        law = np.exp(-20 * rng.random(size))
        law[rng.integers(size)] = 50
    elif kind == "zeros":
        law = rng.random(size) * (rng.random(size) < 0.1)
        law[rng.integers(size)] = 0.5
    elif kind == "tiny":
        law = np.exp(-rng.uniform(0, 700, size))
    elif kind == "subnormal":
        return np.full(size, 3e-310)
    else:
        law = np.zeros(size)
        law[rng.integers(size)] = 1
    return law / law.sum()


def plain(law: np.ndarray, keys: np.ndarray, row: np.uint64) -> int:
    """argmax of ln law + g over every id, in float64."""
    noise = gumbel(steps(keys, row))
    with np.errstate(divide="ignore"):
        return int(np.argmax(np.log(law.astype(np.float64)) + noise))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "kind", ["flat", "random", "peaked", "zeros", "tiny", "subnormal", "certain"]
)
@pytest.mark.parametrize("size", SIZES)
def test_the_shortcut_is_the_full_computation(kind: str, size: int, dtype: type) -> None:
    rng = np.random.default_rng(1)
    keys = keys_of(size)
    for position in range(ROWS):
        law = rows(kind, size, rng).astype(dtype)
        if not law.any():
            law[0] = 1e-45
        row = row_key(9, position)
        assert gumbel_argmax(law, keys, row) == plain(law, keys, row)


@pytest.mark.parametrize("kind", ["flat", "peaked", "random"])
def test_a_row_as_wide_as_gemmas(kind: str) -> None:
    keys = keys_of(262_144)
    rng = np.random.default_rng(2)
    for position in range(4):
        law = rows(kind, 262_144, rng).astype(np.float32)
        row = row_key(3, position)
        assert gumbel_argmax(law, keys, row) == plain(law, keys, row)


def test_steps_at_the_very_end() -> None:
    """ids whose noise is at the top of the range, where float64 rounds k + 1/2."""
    rng = np.random.default_rng(3)
    top = 2**53 - 1
    for _ in range(300):
        k = top - rng.integers(0, 6, size=12)
        keys = np.array([_unmixed(int(value)) for value in k], dtype=np.uint64)
        assert steps(keys, np.uint64(0)).tolist() == k.tolist()
        law = rng.dirichlet(np.ones(12))
        assert gumbel_argmax(law, keys, np.uint64(0)) == plain(law, keys, np.uint64(0))
    assert np.isfinite(gumbel(np.array([0, top - 1, top], dtype=np.uint64))).all()


def _unmixed(k: int) -> int:
    """A key whose steps are k: the finaliser backwards."""
    mask = 2**64 - 1
    x = k << 11
    x ^= x >> 33
    x = x * pow(0xC4CEB9FE1A85EC53, -1, 2**64) & mask
    x ^= x >> 33
    x = x * pow(0xFF51AFD7ED558CCD, -1, 2**64) & mask
    return x ^ (x >> 33)


def test_equals_go_to_the_lowest_id() -> None:
    keys = np.full(5, 77, dtype=np.uint64)
    assert gumbel_argmax(np.array([0.0, 0.3, 0.3, 0.3, 0.1]), keys, row_key(1, 1)) == 1


def test_the_noise_is_what_the_specification_says() -> None:
    data = hashlib.blake2b(
        struct.pack("<Q", 5), digest_size=8, key=struct.pack("<Q", 2**64 - 1), person=b"cosd row"
    )
    row = int.from_bytes(data.digest(), "little")
    assert int(row_key(2**64 - 1, 5)) == row
    x = 123456789 ^ row
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x ^= x >> 33
        x = x * factor % 2**64
    x ^= x >> 33
    k = steps(np.array([123456789], dtype=np.uint64), np.uint64(row))
    assert int(k[0]) == x >> 11
    u = ((x >> 11) + 0.5) / 2**53
    assert gumbel(k)[0] == pytest.approx(-math.log(-math.log(u)), rel=1e-15)


@pytest.mark.parametrize(
    "law", [[0.5, 0.25, 0.125, 0.125], [0.9, 0.1], [0.0, 0.02, 0.98], [1 / 8] * 8]
)
def test_choices_follow_the_law(law: list[float]) -> None:
    count = 20_000
    keys = keys_of(len(law))
    array = np.array(law)
    counts = np.zeros(len(law))
    for position in range(count):
        counts[gumbel_argmax(array, keys, row_key(4, position))] += 1
    expected = count * array
    assert counts[expected == 0].sum() == 0
    used = expected > 0
    statistic = float(((counts[used] - expected[used]) ** 2 / expected[used]).sum())
    freedom = int(used.sum()) - 1
    assert math.sqrt(2 * statistic) - math.sqrt(2 * freedom - 1) < 4


def test_a_flat_row_of_262144_is_chosen_from_evenly() -> None:
    keys = keys_of(262_144)
    law = np.full(262_144, 1 / 262_144, dtype=np.float32)
    count = 400
    chosen = [gumbel_argmax(law, keys, row_key(6, position)) for position in range(count)]
    counts = np.histogram(chosen, bins=16, range=(0, 262_144))[0]
    statistic = float(((counts - count / 16) ** 2 / (count / 16)).sum())
    assert math.sqrt(2 * statistic) - math.sqrt(29) < 4
    assert len(set(chosen)) > count - 6


def test_token_keys_depend_on_bytes_and_roles_and_never_collide() -> None:
    end, turn = TokenRole.END_OF_TEXT, TokenRole.END_OF_TURN
    one = toy_vocabulary([b"a", b"b", b"a", b" the"], controls=(end, turn, end), unused=2)
    other = toy_vocabulary([b" the", b"zz", b"b"], controls=(turn, end))
    ours, theirs = token_keys(one), token_keys(other)
    assert len(set(ours.tolist())) == len(one)
    assert ours[1] == theirs[2]
    assert ours[3] == theirs[0]
    assert ours[4] == theirs[4]
    assert ours[5] == theirs[3]
    shared = set(ours.tolist()) & set(theirs.tolist())
    assert len(shared) == 4
