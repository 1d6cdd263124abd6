"""Server half of `consultant` (LOSSY); the rule stands in `edge_sdk.decoding.consultant`."""

from __future__ import annotations

from edge_sdk.decoding.coins import Coins
from edge_sdk.decoding.consultant import Consultant
from edge_sdk.sampling import Sampling
from server_app.methods.base import Pair, Proposal, ServerHalf, Settlement, draw
from server_app.methods.rows import Rows


class ConsultantServer(ServerHalf):
    def __init__(self, method: Consultant, sampling: Sampling, coins: Coins) -> None:
        self._epsilon = method.threshold
        self._beta = method.beta
        self._greedy = sampling.greedy
        self._coins = coins
        self._r = 0.0
        self._nll = 0.0

    @property
    def state(self) -> float:
        return self._r

    def resume(self, state: float) -> None:
        self._r = state

    def take_nll(self) -> float:
        nll, self._nll = self._nll, 0.0
        return nll

    def accepts(self, rows: Rows, index: int, proposal: Proposal, *, position: int) -> bool:
        nll = -rows.raw_log_probability(index, proposal.tokens[index])
        r = self._smoothed(nll)
        if not r <= self._epsilon:
            return False
        self._r = r
        self._nll += nll
        return True

    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        return Settlement(token=self.settle(rows, index, position=position))

    def settle(self, rows: Rows, index: int, *, position: int) -> int:
        if self._greedy:
            token = rows.argmax(index)
        else:
            token = draw(rows, index, self._coins, position=position)
        nll = -rows.raw_log_probability(index, token)
        self._r = self._smoothed(nll)
        self._nll += nll
        return token

    def _smoothed(self, nll: float) -> float:
        return self._beta * self._r + (1 - self._beta) * nll
