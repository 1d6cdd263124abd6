"""Server half of `upload` (UL): both laws are here, so the server resamples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Key, Purpose
from edge_sdk.decoding.grid import GRID
from edge_sdk.errors import InvalidRequest
from edge_sdk.wire.packing import rank_width, unpack_draft, unpack_grid_laws
from server_app.methods.base import Pair, Proposal, Settlement
from server_app.methods.rows import Rows
from server_app.methods.speculative import SpeculativeServer


class UploadServer(SpeculativeServer):
    carries_laws = True

    def read(self, draft: bytes, pair: Pair | None) -> Proposal:
        if not draft:
            return Proposal(tokens=())
        if pair is None:
            raise InvalidRequest("drafted tokens came without a vocabulary pair", field="draft")
        size = len(pair.target_ids)
        end = 1 + draft[0] * rank_width(size)
        ranks, _ = unpack_draft(draft[1:end], size=size, with_q=False)
        if len(ranks) != draft[0]:
            raise InvalidRequest("the draft is cut short", field="draft")
        laws = unpack_grid_laws(draft[end:], size=size, count=len(ranks))
        for rank, law in zip(ranks.tolist(), laws, strict=True):
            if law[rank] == 0:
                raise InvalidRequest(
                    f"drafted rank {rank} has no mass in its own law", field="draft"
                )
        return Proposal(
            tokens=pair.target_ids[ranks].tolist(),
            numerators=[int(law[rank]) for rank, law in zip(ranks.tolist(), laws, strict=True)],
            laws=laws,
        )

    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        law = rows.law_array(index).astype(np.float64)
        residual = law.copy()
        residual[pair.target_ids] -= q_on_common(proposal.laws, index)
        residual = np.maximum(residual, 0.0)
        if residual.sum() <= 0:
            residual = law
        return Settlement(token=self._coins.categorical(Key(position, Purpose.RESIDUAL), residual))


def q_on_common(laws: Sequence[NDArray[np.int64]] | None, index: int) -> NDArray[np.float64]:
    """q_index [|V_C|] that the device sent."""
    if laws is None:
        raise ValueError("a block of this method carries laws")
    return laws[index] / GRID
