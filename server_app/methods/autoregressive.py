"""`autoregressive`: the target alone, with the same noise as `coupled` for a given seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.noise import gumbel_argmax, row_key
from edge_sdk.sampling import Sampling
from server_app.methods.base import Pair, Proposal, ServerHalf, Settlement
from server_app.methods.rows import Rows


class AutoregressiveServer(ServerHalf):
    def __init__(self, sampling: Sampling, seed: int, keys: NDArray[np.uint64]) -> None:
        self._greedy = sampling.greedy
        self._seed = seed
        self._keys = keys

    def accepts(self, rows: Rows, index: int, proposal: Proposal, *, position: int) -> bool:
        raise ValueError("`autoregressive` verifies no drafts")

    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        raise ValueError("`autoregressive` verifies no drafts")

    def settle(self, rows: Rows, index: int, *, position: int) -> int:
        if self._greedy:
            return rows.argmax(index)
        return gumbel_argmax(rows.law_array(index), self._keys, row_key(self._seed, position))
