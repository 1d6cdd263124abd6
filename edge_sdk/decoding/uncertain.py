"""`uncertain` (U-HLM): ask the server only when the draft is unsure. LOSSY.

One token a round. After drafting x ~ q the device draws again at 20 temperatures, uniform
on (0, 2]; u is the share of those draws that differ from x. While u < u_th the token is
kept and rides unverified in the next request; otherwise the round is `upload` with gamma 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Key, Purpose
from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Drafted, Method, is_number
from edge_sdk.decoding.upload import UploadDevice
from edge_sdk.errors import InvalidRequest

REDRAWS: Final = 20
_HOTTEST: Final = 2.0
# A re-draw's temperature is one of this many steps, so that it is a categorical coin.
_STEPS: Final = 200


class UncertainDevice(UploadDevice):
    def __init__(self, context: DeviceContext, threshold: float) -> None:
        super().__init__(context)
        self._threshold = threshold

    def draft(
        self,
        logits: NDArray[np.float32],
        *,
        position: int,
        block: int,
        seen: NDArray[np.int64] | None = None,
    ) -> Drafted:
        drafted = super().draft(logits, position=position, block=block, seen=seen)
        differ = 0
        coins = self.context.coins
        centred = logits - logits.max()
        for redraw in range(REDRAWS):
            step = coins.categorical(Key(position, Purpose.TEMPERATURE, redraw), np.ones(_STEPS))
            law = np.exp(centred / (_HOTTEST * (step + 1) / _STEPS), dtype=np.float64)
            rank = coins.categorical(Key(position, Purpose.REDRAW, redraw), law)
            differ += rank != drafted.rank
        return replace(drafted, sure=differ / REDRAWS < self._threshold)


@dataclass(frozen=True, slots=True)
class Uncertain(Method):
    """Tokens that the draft is sure of are not verified at all (LOSSY).

    Attributes:
        u_th: keep a token while less than this share of its re-draws differ.
    """

    name: ClassVar[str] = "uncertain"
    lossless: ClassVar[bool] = False
    keeps_sure: ClassVar[bool] = True

    u_th: float = 0.8

    def __post_init__(self) -> None:
        if not is_number(self.u_th) or not 0 <= self.u_th <= 1:
            raise InvalidRequest(f"u_th is {self.u_th!r}; it must be within [0, 1]", field="u_th")

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        return UncertainDevice(context, self.u_th)
