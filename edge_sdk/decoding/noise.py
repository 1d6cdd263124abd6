"""Shared noise: the Gumbel noise that both sides of `coupled`, and `autoregressive`, see.

Specified to the bit in docs/randomness.md.
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_sdk.vocab import END_ROLES, Vocabulary

_C1: Final = np.uint64(0xFF51AFD7ED558CCD)
_C2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_33: Final = np.uint64(33)
_11: Final = np.uint64(11)
_STEPS: Final = float(1 << 53)
_LAST: Final = np.uint64((1 << 53) - 1)
_BELOW_ONE: Final = 1.0 - 2.0**-53
_SMALL: Final = np.float32(1e-37)
_CHUNK: Final = 16384  # numbers that stay in a cache from one operation to the next


def _hash(domain: bytes, data: bytes) -> int:
    digest = hashlib.blake2b(data, digest_size=8, person=b"cosd key", salt=domain).digest()
    return int.from_bytes(digest, "little")


def token_keys(
    vocabulary: Vocabulary, ids: NDArray[np.integer] | None = None
) -> NDArray[np.uint64]:
    """Key of each target id [V], or of the given ones only.

    Ids that a draft of another vocabulary can name have keys that it can compute: the
    bytes for the canonical id of a byte string, the role for the main id of an end role.
    Every other id has a key of its own, since twins must not share noise.
    """
    wanted = range(len(vocabulary)) if ids is None else ids.tolist()
    canonical, pieces = vocabulary.canonical, vocabulary.pieces
    ends = {index: role for role in END_ROLES for index in vocabulary.roles.get(role, ())[:1]}
    keys = []
    for index in wanted:
        if index in ends:
            keys.append(_hash(b"role", ends[index].value.encode()))
        elif pieces[index] and int(canonical[index]) == index:
            keys.append(_hash(b"bytes", pieces[index]))
        else:
            keys.append(_hash(b"id", struct.pack("<Q", index)))
    return np.array(keys, dtype=np.uint64)


def row_key(seed: int, position: int) -> np.uint64:
    """Key of the noise of one position of one generation."""
    digest = hashlib.blake2b(
        struct.pack("<Q", position),
        digest_size=8,
        key=struct.pack("<Q", seed),
        person=b"cosd row",
    ).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def steps(keys: NDArray[np.uint64], row: np.uint64) -> NDArray[np.uint64]:
    """k [n], uniform on 0 ... 2**53 - 1: the top bits of a 64-bit finaliser of key xor row key."""
    x: NDArray[np.uint64] = keys ^ row
    _mix(x, np.empty_like(x))
    return x


def gumbel(k: NDArray[np.uint64]) -> NDArray[np.float64]:
    """g = -ln(-ln u), u = (k + 1/2) / 2**53 in float64 [n], which is 1 - 2**-53 for the
    last k, where float64 would round it to 1."""
    uniform: NDArray[np.float64] = np.minimum((k.astype(np.float64) + 0.5) / _STEPS, _BELOW_ONE)
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


def gumbel_argmax(law: NDArray[np.floating], keys: NDArray[np.uint64], row: np.uint64) -> int:
    """argmax of ln law + g, the lowest index among equals.

    Args:
        law: probabilities [n], non-negative, not all zero.
        keys: token keys [n].
        row: key of the row.

    Only ids that can win get the full float64 noise. With E = -ln u >= 1 - u, id v beats a
    ratio R = E_w / p_w only if 1 - u_v < p_v R; that needs the hash and one comparison.
    """
    weights = law.astype(np.float32, copy=False)
    ratio = _ratios(weights, keys, row)
    first = int(ratio.argmin())
    if law[first] <= 0:
        first = int(weights.argmax())
    bound = largest_ratio(float(law[first]), keys[first], row)
    alive = np.flatnonzero(ratio <= bound)
    alive = alive[law[alive] > 0]
    return int(alive[full_argmax(law[alive], keys[alive], row)])


def full_argmax(law: NDArray[np.floating], keys: NDArray[np.uint64], row: np.uint64) -> int:
    """argmax of ln law + g over positive probabilities [n], without a shortcut."""
    scores = np.log(law.astype(np.float64)) + gumbel(steps(keys, row))
    return int(scores.argmax())


def largest_ratio(probability: float, key: np.uint64, row: np.uint64) -> np.float32:
    """What (1 - u) / p in units of 2**-53 may be at most for an id that beats this one."""
    k = int(steps(np.array([key]), row)[0])
    exact = -math.log(min((k + 0.5) / _STEPS, _BELOW_ONE)) / probability
    with np.errstate(over="ignore"):
        return np.float32(exact * _STEPS * 1.0001)


def _ratios(
    weights: NDArray[np.float32], keys: NDArray[np.uint64], row: np.uint64
) -> NDArray[np.float32]:
    """(1 - u) / p from below [n], in units of 2**-53: (k + 1/2) in float64 may round up to
    k + 1. In float32, whose rounding the margin of `largest_ratio` covers."""
    ratio = np.empty(len(weights), dtype=np.float32)
    x = np.empty(_CHUNK, dtype=np.uint64)
    shifted = np.empty(_CHUNK, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for begin in range(0, len(weights), _CHUNK):
            end = min(begin + _CHUNK, len(weights))
            part, rest = x[: end - begin], shifted[: end - begin]
            np.bitwise_xor(keys[begin:end], row, out=part)
            _mix(part, rest)
            np.subtract(_LAST, part, out=part)
            # NOTE: the same numbers signed; converting unsigned ones is slower.
            out = ratio[begin:end]
            np.copyto(out, part.view(np.int64), casting="unsafe")
            # NOTE: a probability below the smallest float32 would be zero; 1e-37 keeps it in
            # the race.
            out /= np.maximum(weights[begin:end], _SMALL)
    return ratio


def _mix(x: NDArray[np.uint64], shifted: NDArray[np.uint64]) -> None:
    """The finaliser, in place; `shifted` is scratch of the same size."""
    for factor in (_C1, _C2):
        np.right_shift(x, _33, out=shifted)
        x ^= shifted
        x *= factor
    np.right_shift(x, _33, out=shifted)
    x ^= shifted
    x >>= _11
