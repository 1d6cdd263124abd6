"""Device half that settles a rejected position by head and tail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.grid import GRID
from edge_sdk.decoding.head_tail import HeadTailState, read_head_tail, settle_head_tail
from edge_sdk.decoding.speculative import SpeculativeDevice, law_of
from edge_sdk.errors import InvalidRequest, ProtocolError
from edge_sdk.wire.packing import unpack_tokens

if TYPE_CHECKING:
    from edge_sdk.decoding.method import DeviceContext, Drafted


class HeadTailDevice(SpeculativeDevice):
    """Asks for more tail tokens until one is kept or the head is chosen."""

    def __init__(self, context: DeviceContext, law_format: str) -> None:
        super().__init__(context)
        self._format = law_format
        self._state: HeadTailState | None = None
        self._ranks = np.full(context.target_size, -1, dtype=np.int64)
        self._ranks[context.target_ids] = np.arange(len(context.target_ids))

    def settle(
        self, rejection: bytes, drafted: Drafted, *, position: int, block: int
    ) -> int | None:
        if block == 0:
            return self.begin_head_tail(rejection, drafted, position=position)
        return self.more_tail(rejection, drafted, position=position)

    def begin_head_tail(self, data: bytes, drafted: Drafted, *, position: int) -> int | None:
        """Settle from a head and its first tail tokens."""
        size = self.context.target_size
        self._state, ids, p = read_head_tail(data, self._format, size=size)
        return self._settle(ids, p, drafted, position)

    def more_tail(self, data: bytes, drafted: Drafted, *, position: int) -> int | None:
        """Go on with further tail tokens.

        Raises:
            ProtocolError: they are none, or cannot be in the tail.
        """
        if self._state is None:
            raise ProtocolError("the server sent tail tokens without a head")
        try:
            ids, p = unpack_tokens(data, self._format, size=self.context.target_size)
        except InvalidRequest as error:
            raise ProtocolError(f"the server's tail cannot be read: {error}") from error
        if not len(ids) or bool(np.isin(ids, self._state.ids).any()) or bool((p <= 0).any()):
            raise ProtocolError("the server's tail has tokens that cannot be in it")
        return self._settle(ids, p, drafted, position)

    def q(self, ids: NDArray[np.int64], drafted: Drafted) -> NDArray[np.float64]:
        """Draft probabilities of target ids, 0 on V_O."""
        return law_of(drafted).numerators(self._ranks[ids]) / GRID

    def _settle(
        self, ids: NDArray[np.int64], p: NDArray[np.float64], drafted: Drafted, position: int
    ) -> int | None:
        assert self._state is not None
        return settle_head_tail(
            self._state,
            ids,
            p,
            lambda wanted: self.q(wanted, drafted),
            self.context.coins,
            position=position,
        )
