"""`hybrid`: hybrid resampling of X-CoSD (HR). Lossless.

Accept x_i with probability min(1, p(x_i) / q(x_i)). On rejection the replacement has the
law max(p - q, 0) / (theta_c + theta_o), where q lives on V_C:

    theta_c = sum over V_C of max(p - q, 0)      only the device has q
    theta_o = sum over V_O of p                  only the server has p there

Two forms of what the server sends. `law` is the paper's: p on V_C, theta_o, and one V_O
token ~ p / theta_o. The device picks the region V_C with probability
theta_c / (theta_c + theta_o) and draws from max(p - q, 0) itself, else it takes the V_O
token. (The paper asks for that token in a second trip; drawing it ahead is the same law,
since the draw does not depend on the region.) `head_tail` is the compact form
(`edge_sdk.decoding.head_tail`), a few hundred bytes with the same law.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edge_sdk.decoding.coins import Key, Purpose
from edge_sdk.decoding.head_tail_device import HeadTailDevice
from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Drafted, Method, check_choice
from edge_sdk.decoding.speculative import SpeculativeDevice, q_on_common
from edge_sdk.errors import InvalidRequest, ProtocolError
from edge_sdk.wire import limits
from edge_sdk.wire.codec import decode
from edge_sdk.wire.packing import LAW_FORMATS, unpack_law

# Mass below which max(p - q, 0) is rounding noise and p itself is the law.
NEGLIGIBLE = 1e-15
FORMS = ("head_tail", "law")


@dataclass(frozen=True, slots=True)
class HybridRejection:
    """What the server sends for a rejected token in the form `law`.

    Attributes:
        other_mass: theta_o.
        law: packed p on V_C.
        other_token: target id ~ p on V_O, None if theta_o is 0.
    """

    other_mass: float
    law: bytes
    other_token: int | None = None


class HybridDevice(SpeculativeDevice):
    """Device half of the form `law`."""

    def __init__(self, context: DeviceContext, law_format: str) -> None:
        super().__init__(context)
        self._format = law_format

    def settle(
        self, rejection: bytes, drafted: Drafted, *, position: int, block: int
    ) -> int | None:
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
        residual = np.maximum(law - q_on_common(drafted), 0.0)
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
        form: "head_tail" sends the likeliest ids of p and a few drawn ones, "law" all of p
            on V_C as the paper does.
        law_format: how probabilities travel. "f32" is within a total variation of about 1e-7
            of the unrounded law, "f16" within 7e-5 at temperature 1 at half the bytes, "f64"
            is exact to float64.
    """

    name: ClassVar[str] = "hybrid"
    lossless: ClassVar[bool] = True

    form: str = "head_tail"
    law_format: str = "f32"

    def __post_init__(self) -> None:
        check_choice("form", self.form, FORMS)
        check_choice("law_format", self.law_format, LAW_FORMATS)

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        if self.form == "law":
            return HybridDevice(context, self.law_format)
        return HeadTailDevice(context, self.law_format)
