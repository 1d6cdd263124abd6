"""Server half of `hybrid` (X-CoSD, HR); the mathematics stand in `edge_sdk.decoding.hybrid`."""

from __future__ import annotations

import numpy as np

from edge_sdk.decoding.coins import Coins, Key, Purpose
from edge_sdk.decoding.hybrid import HybridRejection
from edge_sdk.wire import encode
from edge_sdk.wire.packing import pack_law
from server_app.methods.base import Pair, Proposal, Settlement
from server_app.methods.head_tail import HeadTailLaw
from server_app.methods.rows import Rows
from server_app.methods.speculative import SpeculativeServer


class HybridServer(SpeculativeServer):
    """The form `law`: on refusal p on V_C, theta_o and one token ~ p on V_O."""

    def __init__(self, coins: Coins, law_format: str) -> None:
        super().__init__(coins)
        self._format = law_format

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


class HeadTailServer(SpeculativeServer):
    """The form `head_tail`: on refusal the head of p and a few tail tokens, more on demand."""

    def __init__(self, coins: Coins, law_format: str) -> None:
        super().__init__(coins)
        self._format = law_format
        self._law: HeadTailLaw | None = None

    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        self._law = HeadTailLaw(
            rows.weights(index), self._coins, position=position, law_format=self._format
        )
        return Settlement(rejection=self._law.first())

    def more(self, block: int) -> bytes:
        if self._law is None:
            return super().more(block)
        return self._law.more()

    def forget(self) -> None:
        self._law = None
