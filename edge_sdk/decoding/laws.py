"""From logits to laws, on the device."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edge_sdk.errors import ModelError
from edge_sdk.sampling import Sampling


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


def _nucleus(law: NDArray[np.float64], mass: float) -> NDArray[np.float64]:
    order = np.argsort(-law, kind="stable")
    sums = np.cumsum(law[order])
    keep = order[: int(np.searchsorted(sums, mass * sums[-1], side="left")) + 1]
    cut = np.zeros_like(law)
    cut[keep] = law[keep]
    cut /= cut.sum()
    return cut
