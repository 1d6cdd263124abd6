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
    """A row, penalised and masked where it is looked at.

    Attributes:
        row: as the model gave them [V], on any device.
        masked: ids that no law contains, ascending [m].
        changed: ids whose logits the penalty changed.
        values: their new logits.
    """

    row: torch.Tensor
    masked: NDArray[np.int64]
    changed: NDArray[np.int64] | None = None
    values: NDArray[np.floating] | None = None

    def spread(self) -> Scratch:
        """The changed row in this thread's scratch."""
        scratch = scratch_for(self.row)
        scratch.load(self.row if self.row.device.type == "cpu" else self.row.cpu())
        if self.changed is not None:
            scratch.array[self.changed] = self.values
        scratch.array[self.masked] = -np.inf
        return scratch

    def kept(self) -> RowLogits:
        """The same, of which nothing changes in the next pass."""
        return RowLogits(self.row.clone(), self.masked, self.changed, self.values)


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
