"""Memory that rows are worked on in, one of each kind a thread, used again for every row."""

from __future__ import annotations

import threading
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

BLOCK: Final = 512  # ids; a row of 262,144 has as many blocks as a block has ids
# torch takes up to this many numbers without waking its other threads, whose barrier costs
# milliseconds where a core is busy with something else.
_UNSHARED: Final = 32768


class Scratch:
    """One padded row.

    Attributes:
        array: [padded], a whole number of blocks.
        owner: whose numbers it holds, None while they are not worth anything.
    """

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        # A tensor made in inference mode could not be written to outside of it.
        with torch.inference_mode(False):
            tensor = torch.empty(-(-size // BLOCK) * BLOCK, dtype=dtype)
            self._parts = tensor[:size].split(_UNSHARED)
        self.array: NDArray[np.floating] = tensor.numpy()
        self.owner: object | None = None

    def load(self, row: torch.Tensor) -> None:
        """Take over a row on the host [size], widened; the padding gets -inf."""
        self.owner = None
        for part, given in zip(self._parts, row.split(_UNSHARED), strict=True):
            part.copy_(given)
        self.array[row.shape[0] :] = -np.inf


class _Held(threading.local):
    def __init__(self) -> None:
        self.by_kind: dict[tuple[int, torch.dtype], Scratch] = {}


_held = _Held()


def scratch_for(row: torch.Tensor) -> Scratch:
    """This thread's scratch for rows like this one, float32 or wider."""
    kind = (row.shape[0], torch.promote_types(row.dtype, torch.float32))
    found = _held.by_kind.get(kind)
    if found is None:
        found = _held.by_kind[kind] = Scratch(*kind)
    return found
