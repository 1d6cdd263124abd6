"""Logits of one row and what is to be changed in them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from edge_sdk.errors import ServerFault
from server_app.methods.scratch import Scratch, scratch_for


@dataclass(frozen=True, slots=True, eq=False)
class RowLogits:
    """A row, masked and penalised where it is looked at.

    Attributes:
        row: as the model gave them [V], on any device.
        masked: int64 [m] ids that no law contains, beside the row.
        penalty: logits of `seen` are divided by it if positive, else multiplied.
        seen: ids, in any order and number of times [n].
    """

    row: torch.Tensor
    masked: torch.Tensor
    penalty: float = 1.0
    seen: NDArray[np.int64] | None = None

    def spread(self) -> Scratch:
        """The changed row in this thread's scratch."""
        scratch = scratch_for(self.row)
        array = scratch.array
        if self.row.device.type == "cpu":
            scratch.load(self.row)
            array[self.masked.numpy()] = -np.inf
        else:
            # Masked where it is, so that one copy is all that waits for the device.
            row = self.row.clone()
            row[self.masked] = -torch.inf
            scratch.load(row.cpu())
        if self.seen is not None:
            values = array[self.seen]
            array[self.seen] = np.where(values > 0, values / self.penalty, values * self.penalty)
        return scratch

    def kept(self) -> RowLogits:
        """The same, of which nothing changes in the next pass."""
        return RowLogits(self.row.clone(), self.masked, self.penalty, self.seen)


def largest_of(array: NDArray[np.floating]) -> np.floating:
    """The largest logit.

    Raises:
        ServerFault: the logits are not numbers, or every id is masked.
    """
    top: np.floating = array.max()
    check_number(float(top))
    return top


def check_number(value: float) -> None:
    """Refuse what logits that are not numbers lead to.

    Raises:
        ServerFault: NaN or infinite.
    """
    if not math.isfinite(value):
        raise ServerFault(
            f"the target's logits lead to {value}; the model, or the precision that it is loaded "
            f"in, is broken"
        )
