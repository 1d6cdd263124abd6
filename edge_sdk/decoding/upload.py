"""`upload` (UL): the device sends whole draft laws, the server resamples. Lossless.

Accept x_i with probability min(1, p(x_i) / q_i(x_i)); the replacement is drawn by the server
from max(p - q, 0) / Z, since it holds both laws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Drafted, Method
from edge_sdk.decoding.speculative import SpeculativeDevice, law_of
from edge_sdk.wire.packing import pack_draft, pack_grid_law


class UploadDevice(SpeculativeDevice):
    """Sends ranks and, after them, each token's law on the grid."""

    def pack(self, drafted: Sequence[Drafted]) -> bytes:
        ranks = np.array([token.rank for token in drafted], dtype=np.int64)
        ids = pack_draft(ranks, None, size=len(self.context.target_ids))
        laws = [pack_grid_law(law_of(token).everywhere()) for token in drafted]
        return bytes([len(drafted)]) + ids + b"".join(laws)


@dataclass(frozen=True, slots=True)
class Upload(Method):
    """Whole draft laws travel up (lossless)."""

    name: ClassVar[str] = "upload"
    lossless: ClassVar[bool] = True

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        return UploadDevice(context)
