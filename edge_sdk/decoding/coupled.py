"""`coupled`: shared randomness. Lossless; only ids cross the link.

Both sides see the same Gumbel noise g_t at position t (`edge_sdk.decoding.noise`):

    device drafts   x = argmax log q + g_t        over V_C
    server computes y = argmax log p + g_t        over V

and keeps x_i while it equals y_i; y settles. By the Gumbel-max trick y ~ p. The text
depends on the seed and the target only, so with the same seed it equals the server's own
sampling, whatever the draft, gamma or the link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.ids_only import IdsOnly
from edge_sdk.decoding.laws import shaped
from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Drafted, Method
from edge_sdk.decoding.noise import gumbel_argmax, row_key


class CoupledDevice(IdsOnly):
    def __init__(self, context: DeviceContext) -> None:
        super().__init__(context)
        self._keys = context.token_keys()

    def draft(
        self,
        logits: NDArray[np.float32],
        *,
        position: int,
        block: int,
        seen: NDArray[np.int64] | None = None,
    ) -> Drafted:
        law = shaped(logits, self.context.sampling, seen)
        return Drafted(gumbel_argmax(law, self._keys, row_key(self.context.seed, position)))


@dataclass(frozen=True, slots=True)
class Coupled(Method):
    """Shared randomness (lossless): the text equals the server's own for the same seed."""

    name: ClassVar[str] = "coupled"
    lossless: ClassVar[bool] = True

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        return CoupledDevice(context)
