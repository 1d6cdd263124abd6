"""All randomness of both sides, behind one interface.

A coin is a function of (seed, side, position, purpose, block), never of time or of how
often it was asked for. A request that is sent again, a session that is opened again and
a block that arrives late therefore see the same coins, and a lost reply cannot bias the
text (docs/randomness.md).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.cumulative import SummedArray, Weighted

MAX_SEED = 2**64 - 1
_STEPS = 1 << 53


class Side(IntEnum):
    """Domain of the PRF; the two sides never share a coin."""

    SERVER = 0
    DEVICE = 1


class Purpose(IntEnum):
    """What a coin decides."""

    DRAFT = 0  # device: the drafted token
    ACCEPT = 1  # server: keep the drafted token
    SETTLE = 2  # server: the settled token, ~ p
    OTHER = 3  # server: a token of V_O, ~ p
    REGION = 4  # device: replacement from V_C or from V_O
    RESIDUAL = 5  # the replacement, ~ max(p - q, 0)
    CANDIDATE = 6  # server: a candidate, ~ p
    KEEP = 7  # device: keep a candidate
    HEAD = 8  # device: replacement from the head or from the tail
    TAIL = 9  # server: a tail token, ~ p
    TAIL_KEEP = 10  # device: keep a tail token
    TEMPERATURE = 11  # device: temperature of a re-draw
    REDRAW = 12  # device: a re-draw


class Key(NamedTuple):
    """Names one coin.

    Attributes:
        position: generated target tokens before the one in question.
        purpose: what is decided.
        block: which of several coins for that position and purpose.
    """

    position: int
    purpose: Purpose
    block: int = 0


class Coins(Protocol):
    """The injected interface: tests replace it to enumerate every outcome."""

    def bernoulli(self, key: Key, probability: float) -> bool:
        """True with the given probability (clipped to [0, 1])."""
        ...

    def surely_false(self, key: Key) -> float:
        """`bernoulli` of this key is False for every probability up to this; 0 where that is not
        known before it is asked."""
        ...

    def categorical(self, key: Key, weights: NDArray[np.float64] | Weighted) -> int:
        """Index drawn in proportion to `weights` [n], non-negative with a positive sum."""
        ...

    def categoricals(
        self, keys: Iterable[Key], weights: NDArray[np.float64] | Weighted
    ) -> Iterator[int]:
        """One `categorical` after the other from the same weights, as they are asked for."""
        ...


class PrfCoins:
    """Coins of one side of one generation from keyed BLAKE2b (specified in docs/randomness.md)."""

    __slots__ = ("_hash",)

    def __init__(self, *, seed: int, side: Side) -> None:
        self._hash = hashlib.blake2b(
            digest_size=8, key=struct.pack("<Q", seed), person=b"cosd coin", salt=bytes([side])
        )

    def integer(self, key: Key) -> int:
        """Uniform on 0 ... 2**53 - 1."""
        state = self._hash.copy()
        state.update(struct.pack("<QQQ", key.position, key.purpose, key.block))
        return int.from_bytes(state.digest(), "little") >> 11

    def uniform(self, key: Key) -> float:
        """Uniform on the midpoints (k + 1/2) / 2**53, never 0 and never 1."""
        # NOTE: float64 rounds the last midpoint up to 1, which would refuse what is certain.
        return min((self.integer(key) + 0.5) / _STEPS, 1.0 - 2.0**-53)

    def bernoulli(self, key: Key, probability: float) -> bool:
        return self.uniform(key) < probability

    def surely_false(self, key: Key) -> float:
        return self.uniform(key)

    def categorical(self, key: Key, weights: NDArray[np.float64] | Weighted) -> int:
        return next(self.categoricals((key,), weights))

    def categoricals(
        self, keys: Iterable[Key], weights: NDArray[np.float64] | Weighted
    ) -> Iterator[int]:
        held = SummedArray(weights) if isinstance(weights, np.ndarray) else weights
        total = held.total
        if not 0 < total < np.inf:
            raise ValueError(f"categorical weights sum to {total}")
        for key in keys:
            yield held.outcome(self.uniform(key) * total)
