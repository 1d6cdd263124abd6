"""Methods that the others are measured against. They draft ~ q and send ids and q(x).

`full`             lossless. On rejection the server sends p on all of V, the device draws
                   from max(p - q, 0) itself.
`greedy_resample`  lossy. The replacement is argmax p.
`target_resample`  lossy. The replacement is drawn ~ p, so what q has too much of is
                   refused, but what it has too little of is not made up for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edge_sdk.decoding.coins import Key, Purpose
from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Drafted, Method, check_choice
from edge_sdk.decoding.speculative import SpeculativeDevice, q_on_common
from edge_sdk.errors import InvalidRequest, ProtocolError
from edge_sdk.wire.packing import LAW_FORMATS, unpack_law


class FullDevice(SpeculativeDevice):
    def __init__(self, context: DeviceContext, law_format: str) -> None:
        super().__init__(context)
        self._format = law_format

    def settle(
        self, rejection: bytes, drafted: Drafted, *, position: int, block: int
    ) -> int | None:
        try:
            law = unpack_law(rejection, self._format, size=self.context.target_size)
        except InvalidRequest as error:
            raise ProtocolError(f"the server's law cannot be read: {error}") from error
        residual = law.copy()
        residual[self.context.target_ids] -= q_on_common(drafted)
        residual = np.maximum(residual, 0.0)
        if residual.sum() <= 0:
            residual = law
        if residual.sum() <= 0:
            raise ProtocolError("the server's law has no mass")
        return self.context.coins.categorical(Key(position, Purpose.RESIDUAL), residual)


@dataclass(frozen=True, slots=True)
class Full(Method):
    """The whole target law on every rejection (lossless).

    Attributes:
        law_format: how probabilities travel, as in `Hybrid`.
    """

    name: ClassVar[str] = "full"
    lossless: ClassVar[bool] = True

    law_format: str = "f32"

    def __post_init__(self) -> None:
        check_choice("law_format", self.law_format, LAW_FORMATS)

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        return FullDevice(context, self.law_format)


@dataclass(frozen=True, slots=True)
class GreedyResample(Method):
    """Replace a rejected token by the likeliest one (LOSSY)."""

    name: ClassVar[str] = "greedy_resample"
    lossless: ClassVar[bool] = False

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        return SpeculativeDevice(context)


@dataclass(frozen=True, slots=True)
class TargetResample(Method):
    """Replace a rejected token by one drawn from the target's law (LOSSY)."""

    name: ClassVar[str] = "target_resample"
    lossless: ClassVar[bool] = False

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        return SpeculativeDevice(context)
