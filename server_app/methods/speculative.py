"""What server halves share that accept a draft with min(1, p / q)."""

from __future__ import annotations

from collections.abc import Sequence

from edge_sdk.decoding.coins import Coins, Key, Purpose
from edge_sdk.decoding.grid import GRID
from server_app.methods.base import Pair, Proposal, ServerHalf, Settlement, draw
from server_app.methods.rows import Rows


class SpeculativeServer(ServerHalf):
    """Accepts on the unrounded p; q is exact on its grid. The bonus is drawn ~ p."""

    carries_q = True

    def __init__(self, coins: Coins) -> None:
        self._coins = coins

    def accepts(self, rows: Rows, index: int, proposal: Proposal, *, position: int) -> bool:
        if proposal.numerators is None:
            raise ValueError("a block of this method carries q")
        ratio = rows.probability(index, proposal.tokens[index]) * GRID / proposal.numerators[index]
        return self._coins.bernoulli(Key(position, Purpose.ACCEPT), min(1.0, ratio))

    def refused_up_to(self, proposal: Proposal, *, position: int) -> Sequence[float] | None:
        """u q(x): the coin u keeps x only if u < p(x) / q(x)."""
        # Another test has other bounds.
        if type(self).accepts is not SpeculativeServer.accepts or proposal.numerators is None:
            return None
        return [
            self._coins.surely_false(Key(position + index, Purpose.ACCEPT)) * numerator / GRID
            for index, numerator in enumerate(proposal.numerators)
        ]

    def settle(self, rows: Rows, index: int, *, position: int) -> int:
        return draw(rows, index, self._coins, position=position)


class GreedyResampleServer(SpeculativeServer):
    """`greedy_resample` (LOSSY): the replacement is argmax p."""

    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        return Settlement(token=rows.argmax(index))


class TargetResampleServer(SpeculativeServer):
    """`target_resample` (LOSSY): the replacement is drawn ~ p."""

    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        return Settlement(token=draw(rows, index, self._coins, position=position))
