"""Laws of single rows, as weights that need not be summed again for every question."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.cumulative import RunningSums
from server_app.methods.largest import largest
from server_app.methods.row_logits import RowLogits, check_number, largest_of
from server_app.methods.scratch import BLOCK, scratch_for


class Weights(ABC):
    """A law p of one row, times a constant.

    Attributes:
        size: |V|.
        normaliser: the constant; p is a weight divided by it.
    """

    size: int
    normaliser: float

    @property
    @abstractmethod
    def total(self) -> float:
        """Sum of all weights, to draw by."""

    @abstractmethod
    def of(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Weights of ids [n]."""

    @abstractmethod
    def outcome(self, point: float) -> int:
        """The first id whose cumulative weight is above a point of [0, total)."""

    @abstractmethod
    def largest(self, count: int) -> NDArray[np.int64]:
        """Ids of the largest weights, descending, the lowest id first among equals; at most
        `count`, and all that are positive if there are fewer."""

    @abstractmethod
    def without(self, ids: NDArray[np.int64]) -> Weights:
        """The same with some ids at zero, and the same normaliser."""

    @abstractmethod
    def kept(self) -> Weights:
        """The same, good for longer than the pass whose logits it came from."""

    @abstractmethod
    def array(self) -> NDArray[np.floating]:
        """All weights [V], to be read at once: the next row is put in the same place."""

    def p(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Probabilities of ids [n]."""
        return self.of(ids) / self.normaliser

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array(), dtype=dtype)


class RowWeights(Weights):
    """exp((l - top) / T) of every id, in float32 or as wide as the logits.

    The normaliser is summed as wide as the weights within blocks of ids, and in float64 over
    the blocks: on rows of 262,144 float32 weights it is off by less than 1e-7 of itself, for
    accept test and residual alike. Draws go by sums in float64 throughout, which are formed
    for the first draw. The weights themselves stay in the scratch until another row comes,
    and are computed again if they are asked for after that: the same bits, since nothing but
    the logits goes in.

    Args:
        logits: the row.
        temperature: T, above 0.
        sums: float64 sums of the weights over blocks of ids, where they are known.

    Raises:
        ServerFault: the logits are not numbers.
    """

    def __init__(
        self,
        logits: RowLogits,
        temperature: float,
        *,
        sums: NDArray[np.float64] | None = None,
    ) -> None:
        self.size = logits.row.shape[0]
        self._logits = logits
        self._temperature = temperature
        if sums is None:
            self._bounds = np.einsum("ij->i", self._padded().reshape(-1, BLOCK))
        else:
            self._bounds = sums
        self._sums = sums
        self._running: RunningSums | None = None
        self.normaliser = float(self._bounds.sum(dtype=np.float64))
        check_number(self.normaliser)

    @property
    def sums(self) -> NDArray[np.float64]:
        """Float64 sums over blocks of ids [blocks]."""
        if self._sums is None:
            blocks = self._padded().reshape(-1, BLOCK)
            self._sums = np.einsum("ij->i", blocks, dtype=np.float64)
        return self._sums

    @property
    def total(self) -> float:
        return self._blocks.total

    @property
    def _blocks(self) -> RunningSums:
        if self._running is None:
            self._running = RunningSums(self.sums)
        return self._running

    def _padded(self) -> NDArray[np.floating]:
        scratch = scratch_for(self._logits.row)
        if scratch.owner is not self:
            array = self._logits.spread().array
            array -= largest_of(array)
            array *= array.dtype.type(1 / self._temperature)
            np.exp(array, out=array)
            scratch.owner = self
        return scratch.array

    def array(self) -> NDArray[np.floating]:
        return self._padded()[: self.size]

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._padded()[ids].astype(np.float64)

    def outcome(self, point: float) -> int:
        number, rest = self._blocks.find(point)
        return number * BLOCK + RunningSums(self.block(number)).find(rest)[0]

    def block(self, number: int) -> NDArray[np.floating]:
        """Weights of one block of ids; not to be changed."""
        return self._padded()[number * BLOCK : (number + 1) * BLOCK]

    def largest(self, count: int) -> NDArray[np.int64]:
        ids = largest(self._padded(), min(count, self.size), self._bounds)
        return ids[self._padded()[ids] > 0]

    def without(self, ids: NDArray[np.int64]) -> Weights:
        return _Reduced(self, ids)

    def kept(self) -> RowWeights:
        other = RowWeights(self._logits.kept(), self._temperature, sums=self.sums)
        other.normaliser = self.normaliser
        return other


class _Reduced(Weights):
    """A row with some ids at zero."""

    def __init__(
        self, whole: RowWeights, ids: NDArray[np.int64], blocks: RunningSums | None = None
    ) -> None:
        self.size = whole.size
        self._whole = whole
        self._ids = np.sort(ids)
        self.normaliser = whole.normaliser
        self._blocks = blocks or self._summed()

    @property
    def total(self) -> float:
        return self._blocks.total

    def _summed(self) -> RunningSums:
        sums = self._whole.sums.copy()
        # NOTE: summed anew, since taking the head off its block would leave a difference of
        # nearly equal numbers.
        for number in {each // BLOCK for each in self._ids.tolist()}:
            sums[number] = self.block(number).sum(dtype=np.float64)
        return RunningSums(sums)

    def block(self, number: int) -> NDArray[np.floating]:
        block = self._whole.block(number).copy()
        begin = number * BLOCK
        first, last = self._ids.searchsorted((begin, begin + BLOCK))
        block[self._ids[first:last] - begin] = 0
        return block

    def array(self) -> NDArray[np.floating]:
        array = self._whole.array().copy()
        array[self._ids] = 0
        return array

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        weights = self._whole.of(ids)
        weights[_listed(ids, self._ids)] = 0
        return weights

    def outcome(self, point: float) -> int:
        number, rest = self._blocks.find(point)
        return number * BLOCK + RunningSums(self.block(number)).find(rest)[0]

    def largest(self, count: int) -> NDArray[np.int64]:
        ids = self._whole.largest(count + len(self._ids))
        return ids[~_listed(ids, self._ids)][:count]

    def without(self, ids: NDArray[np.int64]) -> Weights:
        return _Reduced(self._whole, np.union1d(self._ids, ids))

    def kept(self) -> Weights:
        return _Reduced(self._whole.kept(), self._ids, self._blocks)


class ListedWeights(Weights):
    """A law of few ids.

    Args:
        ids: ascending [n].
        weights: of these ids [n], positive.
        size: |V|.
        normaliser: the weights' sum if not given.
    """

    def __init__(
        self,
        ids: NDArray[np.int64],
        weights: NDArray[np.float64],
        *,
        size: int,
        normaliser: float | None = None,
    ) -> None:
        self.ids = ids
        self.weights = weights
        self.size = size
        self._sums = RunningSums(weights)
        self.normaliser = normaliser or self._sums.total

    @property
    def total(self) -> float:
        return self._sums.total

    def array(self) -> NDArray[np.floating]:
        array = np.zeros(self.size)
        array[self.ids] = self.weights
        return array

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        weights = np.zeros(len(ids))
        listed = _listed(ids, self.ids)
        weights[listed] = self.weights[self.ids.searchsorted(ids[listed])]
        return weights

    def outcome(self, point: float) -> int:
        return int(self.ids[self._sums.find(point)[0]])

    def largest(self, count: int) -> NDArray[np.int64]:
        return self.ids[np.argsort(-self.weights, kind="stable")[:count]]

    def without(self, ids: NDArray[np.int64]) -> ListedWeights:
        left = ~_listed(self.ids, np.sort(ids))
        return ListedWeights(
            self.ids[left],
            self.weights[left],
            size=self.size,
            normaliser=self.normaliser,
        )

    def kept(self) -> ListedWeights:
        return self


def _listed(ids: NDArray[np.int64], ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of some ids [n] are in an ascending list."""
    if not len(ascending):
        return np.zeros(len(ids), dtype=np.bool_)
    places = np.minimum(ascending.searchsorted(ids), len(ascending) - 1)
    found: NDArray[np.bool_] = ascending[places] == ids
    return found
