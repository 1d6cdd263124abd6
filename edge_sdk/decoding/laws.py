"""From logits to laws, on the device.

The draft law is kept on a grid of 2**-24: q(x) = k(x) / 2**24 with integers k that sum to
2**24. Any draft law is allowed, so rounding q costs nothing but a little acceptance, and
every q(x) is exact in 24 bits, in float32 and in float64. Both sides thus hold the same
q, the draw is an integer comparison, and no rounding enters the accept test or the
residual (docs/methods.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edge_sdk.errors import ModelError
from edge_sdk.sampling import Sampling

GRID_BITS = 24
GRID = 1 << GRID_BITS


def penalised(
    logits: NDArray[np.floating], penalty: float, seen: NDArray[np.integer]
) -> NDArray[np.floating]:
    """Logits [n] with the repetition penalty on the ids `seen` (Keskar et al. 2019)."""
    if penalty == 1 or not len(seen):
        return logits
    logits = logits.copy()
    values = logits[seen]
    logits[seen] = np.where(values > 0, values / penalty, values * penalty)
    return logits


def shaped(
    logits: NDArray[np.floating],
    sampling: Sampling,
    seen: NDArray[np.integer] | None = None,
) -> NDArray[np.float64]:
    """Law [n] of one row of logits [n] after every transform, in the order of `Sampling`.

    Raises:
        ModelError: the logits are not numbers.
    """
    if seen is not None:
        logits = penalised(logits, sampling.repetition_penalty, seen)
    top = float(logits.max())
    if not np.isfinite(top):
        raise ModelError(f"the draft's logits contain {top}; the model or its export is broken")
    if sampling.greedy:
        return one_hot(len(logits), int(logits.argmax()))
    scaled = (logits - top) / sampling.temperature
    if sampling.top_k and sampling.top_k < len(scaled):
        kth = np.partition(scaled, -sampling.top_k)[-sampling.top_k]
        scaled = np.where(scaled < kth, -np.inf, scaled)
    law: NDArray[np.float64] = np.exp(scaled, dtype=np.float64)
    law /= law.sum()
    if sampling.top_p < 1:
        law = _nucleus(law, sampling.top_p)
    if sampling.min_p > 0:
        law[law < sampling.min_p * law.max()] = 0.0
        law /= law.sum()
    return law


def one_hot(size: int, index: int) -> NDArray[np.float64]:
    """The law [size] that is certain of one id."""
    law = np.zeros(size, dtype=np.float64)
    law[index] = 1.0
    return law


def grid_law(
    logits: NDArray[np.float32], sampling: Sampling, seen: NDArray[np.integer] | None = None
) -> NDArray[np.int32]:
    """`on_grid(shaped(...))`, where only a temperature applies in float32 and in one buffer:
    any draft law is as good, and a wide row takes half the time.

    Raises:
        ModelError: the logits are not numbers.
    """
    if sampling.greedy or sampling.truncates:
        return on_grid(shaped(logits, sampling, seen))
    row = logits if seen is None else penalised(logits, sampling.repetition_penalty, seen)
    likeliest = int(row.argmax())
    top = float(row[likeliest])
    if not np.isfinite(top):
        return on_grid(shaped(logits, sampling, seen))
    law = np.subtract(row, np.float32(top), dtype=np.float32)
    law *= np.float32(1 / sampling.temperature)
    np.exp(law, out=law)
    law *= np.float32(GRID / float(law.sum()))
    np.rint(law, out=law)
    counts = law.astype(np.int32)
    counts[likeliest] += GRID - int(counts.sum(dtype=np.int32))
    if counts[likeliest] > 0:
        return counts
    return on_grid(shaped(logits, sampling, seen))


def _nucleus(law: NDArray[np.float64], mass: float) -> NDArray[np.float64]:
    order = np.argsort(-law, kind="stable")
    sums = np.cumsum(law[order])
    keep = order[: int(np.searchsorted(sums, mass * sums[-1], side="left")) + 1]
    cut = np.zeros_like(law)
    cut[keep] = law[keep]
    cut /= cut.sum()
    return cut


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
