"""Server half of `greedy`: keep x_i while it is argmax p_i, settle argmax p."""

from __future__ import annotations

from collections.abc import Sequence

from server_app.methods.base import Pair, Proposal, ServerHalf, Settlement
from server_app.methods.rows import Rows


class GreedyServer(ServerHalf):
    def accepts(self, rows: Rows, index: int, proposal: Proposal, *, position: int) -> bool:
        return rows.argmax(index) == proposal.tokens[index]

    def refused_up_to(self, proposal: Proposal, *, position: int) -> Sequence[float] | None:
        # Another test has other bounds.
        if type(self).accepts is not GreedyServer.accepts:
            return None
        # p is certain of the likeliest id.
        return [0.5] * len(proposal.tokens)

    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        return Settlement(token=rows.argmax(index))

    def settle(self, rows: Rows, index: int, *, position: int) -> int:
        return rows.argmax(index)
