"""`greedy`: temperature 0 on both sides.

Accept x_i while it is argmax p_i; the server settles argmax p. Lossless: the text is the
target's own greedy text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.ids_only import IdsOnly
from edge_sdk.decoding.laws import penalised
from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Drafted, Method
from edge_sdk.errors import InvalidRequest, ModelError
from edge_sdk.sampling import Sampling


class GreedyDevice(IdsOnly):
    def draft(
        self,
        logits: NDArray[np.float32],
        *,
        position: int,
        block: int,
        seen: NDArray[np.int64] | None = None,
    ) -> Drafted:
        if seen is not None:
            logits = penalised(logits, self.context.sampling.repetition_penalty, seen)
        rank = int(logits.argmax())
        if not np.isfinite(logits[rank]):
            raise ModelError(
                f"the draft's logits contain {logits[rank]}; the model or its export is broken"
            )
        return Drafted(rank)


@dataclass(frozen=True, slots=True)
class Greedy(Method):
    """Most likely token at every position (lossless)."""

    name: ClassVar[str] = "greedy"
    lossless: ClassVar[bool] = True

    def check(self, sampling: Sampling) -> None:
        if not sampling.greedy:
            raise InvalidRequest(
                f"method 'greedy' is temperature 0, but temperature is {sampling.temperature}; "
                f"leave the temperature out or choose a sampling method",
                field="temperature",
            )

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        return GreedyDevice(context)
