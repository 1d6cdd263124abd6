"""Server half of `full`: on refusal p on all of V."""

from __future__ import annotations

from edge_sdk.decoding.coins import Coins
from edge_sdk.wire.packing import pack_law
from server_app.methods.base import Pair, Proposal, Settlement
from server_app.methods.rows import Rows
from server_app.methods.speculative import SpeculativeServer


class FullServer(SpeculativeServer):
    def __init__(self, coins: Coins, law_format: str) -> None:
        super().__init__(coins)
        self._format = law_format

    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        return Settlement(rejection=pack_law(rows.law_array(index), self._format))
