"""Server half of `coupled`; the mathematics stand in `edge_sdk.decoding.coupled`."""

from __future__ import annotations

from edge_sdk.decoding.noise import row_key
from edge_sdk.sampling import Sampling
from server_app.methods.base import Pair, Proposal, ServerHalf, Settlement
from server_app.methods.noise import SharedNoise
from server_app.methods.rows import Rows


class CoupledServer(ServerHalf):
    """Keeps x_i while it equals y_i = argmax log p_i + g_i, and settles y. `autoregressive`
    is the same without drafts, so the same seed gives the same text."""

    def __init__(self, sampling: Sampling, seed: int, noise: SharedNoise) -> None:
        self._greedy = sampling.greedy
        self._seed = seed
        self._noise = noise
        self._last: tuple[int, int] | None = None

    def accepts(self, rows: Rows, index: int, proposal: Proposal, *, position: int) -> bool:
        return self.settle(rows, index, position=position) == proposal.tokens[index]

    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        if self._last is not None and self._last[0] == position:
            return Settlement(token=self._last[1])
        return Settlement(token=self.settle(rows, index, position=position))

    def settle(self, rows: Rows, index: int, *, position: int) -> int:
        if self._greedy:
            token = rows.argmax(index)
        else:
            token = self._noise.choose(rows, index, row_key(self._seed, position))
        self._last = (position, token)
        return token
