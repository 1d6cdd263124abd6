"""Drafting ~ q, the part that every method with a q shares.

q is the draft's law on V_C, kept on the grid of 2**-24 (`edge_sdk.decoding.grid`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Key, Purpose
from edge_sdk.decoding.cumulative import Counts
from edge_sdk.decoding.grid import GRID, GridLaw, grid_law
from edge_sdk.decoding.method import DeviceHalf, Drafted
from edge_sdk.errors import ProtocolError
from edge_sdk.wire.packing import pack_draft


class SpeculativeDevice(DeviceHalf):
    """Drafts ~ q and sends ids with q(x). Leaves settling to the server; a method whose
    device settles overrides `settle`."""

    def draft(
        self,
        logits: NDArray[np.float32],
        *,
        position: int,
        block: int,
        seen: NDArray[np.int64] | None = None,
    ) -> Drafted:
        law = grid_law(logits, self.context.sampling, seen)
        key = Key(position, Purpose.DRAFT, block)
        index = self.context.coins.categorical(key, Counts(law.counts))
        return Drafted(int(law.ranks[index]), law)

    def pack(self, drafted: Sequence[Drafted]) -> bytes:
        ranks = np.array([token.rank for token in drafted], dtype=np.int64)
        numerators = np.array(
            [law_of(token).numerator(token.rank) for token in drafted], dtype=np.int64
        )
        return pack_draft(ranks, numerators, size=len(self.context.target_ids))

    def settle(
        self, rejection: bytes, drafted: Drafted, *, position: int, block: int
    ) -> int | None:
        raise ProtocolError(
            "the server left a rejected token to the device, which cannot settle it"
        )


def law_of(drafted: Drafted) -> GridLaw:
    """The law that a token was drafted from."""
    if drafted.law is None:
        raise ValueError("a token of this method carries its law")
    return drafted.law


def q_on_common(drafted: Drafted) -> NDArray[np.float64]:
    """q [|V_C|] of the row that a token was drafted from."""
    return law_of(drafted).everywhere() / GRID
