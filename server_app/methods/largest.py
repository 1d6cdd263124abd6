"""The largest numbers of a wide row, without sorting it."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from server_app.methods.scratch import BLOCK

_ROUNDING: Final = 1e-5  # of sums that another device formed


def largest(
    array: NDArray[np.floating], count: int, sums: NDArray[np.float64] | None = None
) -> NDArray[np.int64]:
    """Places of the `count` largest of a padded row, descending, the first among equals.

    Args:
        array: [padded], not negative if sums are given.
        sums: sums over its blocks, where they are known.
    """
    ids, values = _candidates(array, count, sums)
    least = np.partition(values, -count)[-count]
    above = np.flatnonzero(values > least)
    above = above[np.argsort(-values[above], kind="stable")]
    equal = np.flatnonzero(values == least)[: count - len(above)]
    chosen: NDArray[np.int64] = ids[np.concatenate([above, equal])]
    return chosen


def down_to_the(array: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """Ascending places of all that are at least the `count`-th largest of a padded row."""
    ids, values = _candidates(array, count)
    chosen: NDArray[np.int64] = ids[values >= np.partition(values, -count)[-count]]
    return chosen


def _candidates(
    array: NDArray[np.floating], count: int, sums: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """Ascending places, and values, of some that include all down to the `count`-th largest.

    The `count`-th largest of the blocks' maxima is a bound from below: that many numbers
    reach it. So is the least maximum of any `count` blocks, such as those with the largest
    sums; and a block whose sum is below it has nothing that reaches it.
    """
    blocks = array.reshape(-1, BLOCK)
    if count > len(blocks):
        least = np.partition(array, -count)[-count]
        ids = np.flatnonzero(array >= least)
        return ids, array[ids]
    if sums is None:
        bounds = blocks.max(axis=1)
        least = np.partition(bounds, -count)[-count]
    else:
        bounds = sums * (1 + _ROUNDING)
        least = blocks[np.argpartition(sums, -count)[-count:]].max(axis=1).min()
    numbers = np.flatnonzero(bounds >= least)
    part = blocks[numbers]
    inside = np.flatnonzero(part.ravel() >= least)
    return numbers[inside // BLOCK] * BLOCK + inside % BLOCK, part.ravel()[inside]
