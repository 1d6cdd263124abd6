"""`hybrid`: hybrid resampling of X-CoSD (HR). Lossless.

Accept x_i with probability min(1, p(x_i) / q(x_i)). On rejection the replacement has the
law max(p - q, 0) / (theta_c + theta_o), where q lives on V_C:

    theta_c = sum over V_C of max(p - q, 0)      only the device has q
    theta_o = sum over V_O of p                  only the server has p there

The device picks the region V_C with probability theta_c / (theta_c + theta_o) and draws
from max(p - q, 0) itself; otherwise it takes a V_O token that the server drew ~ p / theta_o
beforehand. (The paper asks for that token in a second trip; drawing it ahead is the same
law, since the draw does not depend on the region.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Key, Purpose
from edge_sdk.decoding.laws import GRID, on_grid, shaped
from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Drafted, Method
from edge_sdk.errors import InvalidRequest, ProtocolError
from edge_sdk.wire import limits
from edge_sdk.wire.codec import decode
from edge_sdk.wire.packing import LAW_FORMATS, pack_draft, unpack_law

# Mass below which max(p - q, 0) is rounding noise and p itself is the law.
NEGLIGIBLE = 1e-15


@dataclass(frozen=True, slots=True)
class HybridRejection:
    """What the server sends for a rejected token.

    Attributes:
        other_mass: theta_o.
        law: packed p on V_C.
        other_token: target id ~ p on V_O, None if theta_o is 0.
    """

    other_mass: float
    law: bytes
    other_token: int | None = None


class HybridDevice(DeviceHalf):
    def __init__(self, context: DeviceContext, law_format: str) -> None:
        super().__init__(context)
        self._format = law_format

    def draft(
        self,
        logits: NDArray[np.float32],
        *,
        position: int,
        block: int,
        seen: NDArray[np.int64] | None = None,
    ) -> Drafted:
        law = on_grid(shaped(logits, self.context.sampling, seen))
        key = Key(position, Purpose.DRAFT, block)
        return Drafted(self.context.coins.categorical(key, law.astype(np.float64)), law)

    def pack(self, drafted: Sequence[Drafted]) -> bytes:
        ranks = np.array([token.rank for token in drafted], dtype=np.int64)
        numerators = np.array(
            [token.law[token.rank] for token in drafted if token.law is not None], dtype=np.int64
        )
        return pack_draft(ranks, numerators, size=len(self.context.target_ids))

    def settle(self, rejection: bytes, drafted: Drafted, *, position: int) -> int:
        size = len(self.context.target_ids)
        try:
            message = decode(HybridRejection, rejection, limit=limits.MAX_REPLY_BODY)
            law = unpack_law(message.law, self._format, size=size)
        except InvalidRequest as error:
            raise ProtocolError(f"the server's rejection cannot be read: {error}") from error
        other, token = message.other_mass, message.other_token
        if not 0 <= other <= 1 + 1e-6 or (
            other > 0 and (token is None or not 0 <= token < self.context.target_size)
        ):
            raise ProtocolError(f"the server's rejection gives V_O mass {other} and token {token}")
        if drafted.law is None:
            raise ValueError("a token of `hybrid` carries its law")
        residual = np.maximum(law - drafted.law / GRID, 0.0)
        common = float(residual.sum())
        if common + other <= NEGLIGIBLE:
            residual, common = law, float(law.sum())
        if common + other <= 0:
            raise ProtocolError("the server's rejection gives a law without mass")
        coins = self.context.coins
        region = Key(position, Purpose.REGION)
        if token is None or coins.bernoulli(region, common / (common + other)):
            rank = coins.categorical(Key(position, Purpose.RESIDUAL), residual)
            return int(self.context.target_ids[rank])
        return token


@dataclass(frozen=True, slots=True)
class Hybrid(Method):
    """Hybrid resampling (lossless).

    Attributes:
        law_format: how p on V_C travels after a rejection. "f32" is within a total variation
            of about 1e-7 of the unrounded law, "f16" within 7e-5 at temperature 1 at half the
            bytes, "f64" is exact to float64.
    """

    name: ClassVar[str] = "hybrid"
    lossless: ClassVar[bool] = True

    law_format: str = "f32"

    def __post_init__(self) -> None:
        if self.law_format not in LAW_FORMATS:
            raise InvalidRequest(
                f"law_format {self.law_format!r} is not one of {', '.join(LAW_FORMATS)}",
                field="law_format",
            )

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        return HybridDevice(context, self.law_format)
