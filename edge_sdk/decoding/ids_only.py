"""Device halves that send ids alone and leave every rejected position to the server."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_sdk.decoding.method import DeviceHalf, Drafted
from edge_sdk.errors import ProtocolError
from edge_sdk.wire.packing import pack_draft


class IdsOnly(DeviceHalf):
    """Packs ranks; a subclass says how a token is drawn."""

    def pack(self, drafted: Sequence[Drafted]) -> bytes:
        ranks = np.array([token.rank for token in drafted], dtype=np.int64)
        return pack_draft(ranks, None, size=len(self.context.target_ids))

    def settle(
        self, rejection: bytes, drafted: Drafted, *, position: int, block: int
    ) -> int | None:
        raise ProtocolError(
            "the server left a rejected token to the device, which cannot settle it"
        )
