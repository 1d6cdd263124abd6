"""`mentored` (MD): bounded divergence from the target. LOSSY unless D = 0.

Of all laws clip(q, p/b, p/a) with a <= 1 <= b and sum 1, the one whose divergence from the
target is KL(p || final) = min(D, KL(p || q)). The server accepts x with min(1, p / (a q)) and
otherwise draws from max(p/b - q, 0), normalised. D = 0 gives a = b = 1, which is plain
speculative sampling. The device sends its laws, as in `upload`; the server does the rest
(`server_app.methods.mentored`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Method, is_number
from edge_sdk.decoding.upload import UploadDevice
from edge_sdk.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Mentored(Method):
    """A law between draft and target, within a divergence of the target (LOSSY).

    Attributes:
        d: largest KL(target || final) in nats; 0 is lossless.
        tolerance: how far from d it may end, in nats.
    """

    name: ClassVar[str] = "mentored"
    lossless: ClassVar[bool] = False

    d: float = 0.3
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        for name, value, least in (("d", self.d, 0.0), ("tolerance", self.tolerance, 1e-12)):
            if not is_number(value) or value < least:
                raise InvalidRequest(
                    f"{name} is {value!r}; it must be a finite number of nats, at least {least:g}",
                    field=name,
                )

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        return UploadDevice(context)
