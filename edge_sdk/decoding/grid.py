"""Draft laws on a grid of 2**-24.

q(x) = k(x) / 2**24 with integers k that sum to 2**24. Any draft law is allowed, so rounding q
costs nothing but a little acceptance, and every q(x) is exact in 24 bits, in float32 and in
float64. Both sides thus hold the same q, the draw is an integer comparison, and no rounding
enters the accept test or the residual (docs/methods.md).

Most of a wide vocabulary is less likely than half a step of the grid, so a law is held where it
is not 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.laws import penalised, shaped
from edge_sdk.sampling import Sampling

GRID_BITS: Final = 24
GRID: Final = 1 << GRID_BITS
# A weight below 2**-25 of the largest is no more of the sum, and rounds to 0.
_REACH: Final = (GRID_BITS + 1) * math.log(2)


@dataclass(frozen=True, slots=True, eq=False)
class GridLaw:
    """A draft law on V_C.

    Attributes:
        size: |V_C|.
        ranks: ascending ranks outside of which the law is 0, int64 [n].
        counts: their numerators, which sum to 2**24, int32 [n].
    """

    size: int
    ranks: NDArray[np.int64]
    counts: NDArray[np.int32]

    @classmethod
    def of_counts(cls, counts: NDArray[np.int32]) -> Self:
        """The law of numerators [|V_C|]."""
        ranks = np.flatnonzero(counts)
        return cls(len(counts), ranks, counts[ranks])

    def numerators(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numerators of ranks [n]; 0 for a rank of -1."""
        places = np.minimum(self.ranks.searchsorted(ranks), len(self.ranks) - 1)
        return np.where(self.ranks[places] == ranks, self.counts[places], 0)

    def numerator(self, rank: int) -> int:
        """Numerator of one rank."""
        place = int(self.ranks.searchsorted(rank))
        found = place < len(self.ranks) and self.ranks[place] == rank
        return int(self.counts[place]) if found else 0

    def everywhere(self) -> NDArray[np.int32]:
        """All numerators [|V_C|]."""
        counts = np.zeros(self.size, dtype=np.int32)
        counts[self.ranks] = self.counts
        return counts


def grid_law(
    logits: NDArray[np.float32], sampling: Sampling, seen: NDArray[np.integer] | None = None
) -> GridLaw:
    """`on_grid(shaped(...))`, where only a temperature applies in float32 and on those ids that
    can come to a step of the grid: any draft law is as good.

    Raises:
        ModelError: the logits are not numbers.
    """
    if sampling.greedy or sampling.truncates:
        return GridLaw.of_counts(on_grid(shaped(logits, sampling, seen)))
    row = logits if seen is None else penalised(logits, sampling.repetition_penalty, seen)
    top = float(row.max())
    if not np.isfinite(top):
        return GridLaw.of_counts(on_grid(shaped(logits, sampling, seen)))
    ranks = np.flatnonzero(row >= np.float32(top - _REACH * sampling.temperature))
    law = row[ranks].astype(np.float32, copy=False)
    law -= np.float32(top)
    law *= np.float32(1 / sampling.temperature)
    np.exp(law, out=law)
    law *= np.float32(GRID / float(law.sum()))
    np.rint(law, out=law)
    counts = law.astype(np.int32)
    likeliest = int(law.argmax())
    counts[likeliest] += GRID - int(counts.sum(dtype=np.int32))
    if counts[likeliest] > 0:
        return GridLaw(len(row), ranks, counts)
    return GridLaw.of_counts(on_grid(shaped(logits, sampling, seen)))


def on_grid(law: NDArray[np.float64]) -> NDArray[np.int32]:
    """Round a law [n] to integers [n] that sum to 2**24; the likeliest takes what is left.

    A flat law may round up so often that the likeliest would have to give more than it has;
    that one is rounded down, and the ids that lose most of a step get one back.
    """
    scaled = law * GRID
    counts = np.rint(scaled).astype(np.int32)
    top = int(law.argmax())
    left = GRID - int(counts.sum(dtype=np.int64))
    if counts[top] + left > 0:
        counts[top] += left
        return counts
    counts = np.floor(scaled).astype(np.int32)
    left = GRID - int(counts.sum(dtype=np.int64))
    counts[np.argsort(counts - scaled, kind="stable")[:left]] += 1
    return counts
