"""Laws cut by top-k, top-p and min-p, in this order."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_sdk.sampling import Sampling
from server_app.methods.largest import down_to_the
from server_app.methods.row_logits import RowLogits, largest_of
from server_app.methods.weights import ListedWeights, RowWeights

# How many likeliest ids are looked at for top-p before the whole row is sorted.
_TRIES: Final = (64, 4096)
_SLACK: Final = 1e-3  # of a logit; rounding is far below


def cut_law(logits: RowLogits, sampling: Sampling) -> ListedWeights:
    """The law of a row under the sampling, which cuts some ids."""
    size = logits.row.shape[0]
    if 0 < sampling.top_k < size or sampling.top_p == 1:
        array = logits.spread().array
        top = float(largest_of(array))
        ids = _before_top_p(array[:size], array, sampling, top)
        values = array[ids].astype(np.float64)
        weights = np.exp((values - top) / sampling.temperature)
        if sampling.top_p < 1:
            order = np.argsort(-weights, kind="stable")
            sums = np.cumsum(weights[order])
            order = np.sort(order[: _reaching(sums, sampling.top_p * float(weights.sum()))])
            ids, weights = ids[order], weights[order]
    else:
        whole = RowWeights(logits, sampling.temperature)
        array = whole.array()
        ids = _nucleus(whole, sampling.top_p)
        weights = whole.of(ids)
    kept = weights >= max(sampling.min_p * float(weights.max()), np.finfo(np.float64).tiny)
    return ListedWeights(ids[kept], weights[kept], size=size)


def _before_top_p(
    row: NDArray[np.floating], padded: NDArray[np.floating], sampling: Sampling, top: float
) -> NDArray[np.int64]:
    """Ascending ids that top-k keeps or, where it is off, that min-p might keep."""
    if 0 < sampling.top_k < len(row):
        return down_to_the(padded, sampling.top_k)
    least = -math.inf
    if sampling.min_p > 0:
        least = top + sampling.temperature * math.log(sampling.min_p) - _SLACK
    return np.flatnonzero(row >= least)


def _nucleus(whole: RowWeights, mass: float) -> NDArray[np.int64]:
    """Ascending ids of the fewest likeliest whose mass reaches `mass`, the lowest among equals."""
    goal = mass * whole.normaliser
    for count in _TRIES:
        ids = whole.largest(count)
        sums = np.cumsum(whole.of(ids))
        if sums[-1] >= goal:
            return np.sort(ids[: _reaching(sums, goal)])
    descending = np.sort(whole.array())[::-1]
    count = _reaching(np.cumsum(descending, dtype=np.float64), goal)
    return np.sort(whole.largest(count))


def _reaching(sums: NDArray[np.float64], goal: float) -> int:
    """How many of descending weights with these running sums reach a goal."""
    return min(int(np.searchsorted(sums, goal, side="left")) + 1, len(sums))
