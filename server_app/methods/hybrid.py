"""Server half of `hybrid` (X-CoSD, HR); the mathematics stand in `edge_sdk.decoding.hybrid`.

Accept on the unrounded p with min(1, p(x) / q(x)); on refusal send p on V_C, theta_o and
one token ~ p on V_O.
"""

from __future__ import annotations

import numpy as np

from edge_sdk.decoding.coins import Coins, Key, Purpose
from edge_sdk.decoding.hybrid import Hybrid, HybridRejection
from edge_sdk.decoding.laws import GRID
from edge_sdk.wire import encode
from edge_sdk.wire.packing import pack_law
from server_app.methods.base import Pair, Proposal, ServerHalf, Settlement, draw
from server_app.methods.rows import Rows


class HybridServer(ServerHalf):
    carries_q = True

    def __init__(self, method: Hybrid, coins: Coins) -> None:
        self._format = method.law_format
        self._coins = coins

    def accepts(self, rows: Rows, index: int, proposal: Proposal, *, position: int) -> bool:
        if proposal.numerators is None:
            raise ValueError("a block of `hybrid` carries q")
        ratio = rows.probability(index, proposal.tokens[index]) * GRID / proposal.numerators[index]
        return self._coins.bernoulli(Key(position, Purpose.ACCEPT), min(1.0, ratio))

    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        law = rows.law_array(index).astype(np.float64)
        common = law[pair.target_ids]
        law[pair.target_ids] = 0.0
        other_mass = float(law.sum())
        token = None
        if other_mass > 0:
            token = self._coins.categorical(Key(position, Purpose.OTHER), law)
        message = HybridRejection(
            other_mass=other_mass, law=pack_law(common, self._format), other_token=token
        )
        return Settlement(rejection=encode(message))

    def settle(self, rows: Rows, index: int, *, position: int) -> int:
        return draw(rows, index, self._coins, position=position)
