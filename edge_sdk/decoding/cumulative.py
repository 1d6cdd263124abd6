"""Finding the index that a uniform number points at, without a running sum over all weights.

A running sum over a wide law is slow, since every addition waits for the one before it.
Sums of blocks are not; the running sum goes over the blocks, and then over the one block
that the number falls into. The index is the same up to the rounding of float64.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

_BLOCK: Final = 512


class Weighted(Protocol):
    """Weights [n], non-negative, that find an index themselves.

    Attributes:
        total: their sum.
    """

    @property
    def total(self) -> float: ...

    def outcome(self, point: float) -> int:
        """The first index whose cumulative weight is above a point of [0, total)."""
        ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]: ...


class RunningSums:
    """Cumulative sums of weights [n] in float64."""

    def __init__(self, weights: NDArray[np.floating]) -> None:
        self._sums = np.cumsum(weights, dtype=np.float64)
        self.total = float(self._sums[-1]) if len(weights) else 0.0
        # NOTE: rounding of a point may step past the last positive weight.
        self._last = int(self._sums.searchsorted(self.total))

    def find(self, point: float) -> tuple[int, float]:
        """The first index whose cumulative weight is above a point, and how far the point
        lies into that weight."""
        index = min(int(self._sums.searchsorted(point, "right")), self._last)
        return index, point - (float(self._sums[index - 1]) if index else 0.0)


class SummedArray:
    """An array of weights [n] as `Weighted`."""

    def __init__(self, weights: NDArray[np.floating]) -> None:
        self._weights = weights
        starts = np.arange(0, len(weights), _BLOCK)
        self._blocks = RunningSums(np.add.reduceat(weights, starts, dtype=np.float64))
        self.total = self._blocks.total

    def outcome(self, point: float) -> int:
        block, rest = self._blocks.find(point)
        begin = block * _BLOCK
        return begin + RunningSums(self._weights[begin : begin + _BLOCK]).find(rest)[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._weights, dtype=dtype)


class Counts:
    """Whole weights [n] with a sum below 2**31 as `Weighted`: a running sum over integers does
    not wait for anything."""

    def __init__(self, counts: NDArray[np.int32]) -> None:
        self._counts = counts
        self._sums = np.cumsum(counts, dtype=np.int32)
        self.total = float(self._sums[-1]) if len(counts) else 0.0

    def outcome(self, point: float) -> int:
        # A point of the same type, or all sums would be converted. Rounded up to the total it
        # belongs to the last positive weight.
        whole = np.int32(min(int(point), int(self._sums[-1]) - 1))
        return int(self._sums.searchsorted(whole, "right"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._counts, dtype=dtype)
