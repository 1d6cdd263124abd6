"""Server half of `mentored` (LOSSY unless D = 0); see `edge_sdk.decoding.mentored`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Coins, Key, Purpose
from edge_sdk.decoding.grid import GRID
from edge_sdk.decoding.mentored import Mentored
from server_app.methods.base import Pair, Proposal, Settlement
from server_app.methods.mentored_law import MentoredLaw, mentored_law
from server_app.methods.rows import Rows
from server_app.methods.upload import UploadServer, q_on_common


class MentoredServer(UploadServer):
    """Solves a law for every examined row."""

    def __init__(self, method: Mentored, coins: Coins) -> None:
        super().__init__(coins)
        self._method = method
        self._common: NDArray[np.int64] | None = None
        self._row: tuple[int, NDArray[np.float64], NDArray[np.float64], MentoredLaw] | None = None

    def read(self, draft: bytes, pair: Pair | None) -> Proposal:
        self._common = None if pair is None else pair.target_ids
        return super().read(draft, pair)

    def accepts(self, rows: Rows, index: int, proposal: Proposal, *, position: int) -> bool:
        assert self._common is not None
        p = rows.law_array(index).astype(np.float64)
        q = np.zeros_like(p)
        q[self._common] = q_on_common(proposal.laws, index)
        law = mentored_law(p, q, self._method.d, self._method.tolerance)
        self._row = (position, p, q, law)
        token = proposal.tokens[index]
        assert proposal.numerators is not None
        q_token = proposal.numerators[index] / GRID
        return self._coins.bernoulli(
            Key(position, Purpose.ACCEPT), law.accept(float(p[token]), q_token)
        )

    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        assert self._row is not None
        assert self._row[0] == position
        _, p, q, law = self._row
        residual = law.residual(p, q)
        if residual.sum() <= 0:
            residual = p
        return Settlement(token=self._coins.categorical(Key(position, Purpose.RESIDUAL), residual))
