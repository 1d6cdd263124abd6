"""Coins that take every outcome in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Key, Side


class Pruned(BaseException):
    """The path has less weight than matters."""


class Fork:
    """Choices of one run.

    Rejection sampling may go on for ever with ever smaller probability, so a path is given
    up when its weight falls below `least`; `lost` sums the weights that were given up.
    """

    def __init__(self, least: float = 1e-14) -> None:
        self._least = least
        self.lost = 0.0
        self._taken: list[tuple[int, int]] = []  # (index of the outcome, how many there are)
        self._depth = 0
        self._known: dict[tuple[Side, Key], tuple[int, bytes]] = {}
        self.weight = 1.0

    def begin(self) -> None:
        self._depth = 0
        self._known = {}
        self.weight = 1.0

    def advance(self) -> bool:
        """Step to the next path; False after the last."""
        while self._taken:
            index, count = self._taken.pop()
            if index + 1 < count:
                self._taken.append((index + 1, count))
                return True
        return False

    def choose(self, side: Side, key: Key, weights: NDArray[np.float64]) -> int:
        """An outcome. A key that is asked again gives the same one, and must ask the same."""
        signature = weights.tobytes()
        if (side, key) in self._known:
            outcome, before = self._known[side, key]
            assert before == signature, f"{side} {key} decides two different things"
            return outcome
        possible = np.flatnonzero(weights > 0)
        if self._depth == len(self._taken):
            self._taken.append((0, len(possible)))
        index, count = self._taken[self._depth]
        assert count == len(possible), "a run is not a function of its choices"
        self._depth += 1
        outcome = int(possible[index])
        self.weight *= float(weights[outcome]) / float(weights.sum())
        self._known[side, key] = (outcome, signature)
        if self.weight < self._least:
            self.lost += self.weight
            raise Pruned
        return outcome


class ForkCoins:
    """`Coins` that take every outcome in turn."""

    def __init__(self, fork: Fork, side: Side) -> None:
        self._fork = fork
        self._side = side

    def surely_false(self, key: Key) -> float:
        return 0.0

    def bernoulli(self, key: Key, probability: float) -> bool:
        p = min(1.0, max(0.0, probability))
        return bool(self._fork.choose(self._side, key, np.array([1.0 - p, p])))

    def categorical(self, key: Key, weights: NDArray[np.float64]) -> int:
        return self._fork.choose(self._side, key, np.asarray(weights, dtype=np.float64))

    def categoricals(self, keys: Iterable[Key], weights: NDArray[np.float64]) -> Iterator[int]:
        for key in keys:
            yield self.categorical(key, weights)
