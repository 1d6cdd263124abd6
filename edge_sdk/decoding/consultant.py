"""`consultant`: Consultant Decoding (CD). LOSSY.

A drafted token is kept by the target's own likelihood, smoothed over the text:

    r_0 = 0,   r_i = beta r_{i-1} + (1 - beta) (-ln p_i(x_i))       accept while r_i <= epsilon

on the raw target law (temperature 1). The r of a refused token is discarded; the server
settles ~ p at the chosen sampling (argmax at temperature 0) and updates r with that token.
r belongs to the session and is taken up again when it is opened anew.

`epsilon="chinchilla"` takes the loss that the Chinchilla law (Hoffmann et al. 2022) expects
of a target with N parameters trained on D tokens, L = 1.69 + 406.4 / N^0.34 + 410.7 / D^0.28.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edge_sdk.decoding.ids_only import IdsOnly
from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Method, is_number
from edge_sdk.decoding.speculative import SpeculativeDevice
from edge_sdk.errors import InvalidRequest

CHINCHILLA = "chinchilla"


def chinchilla_loss(parameters: float, tokens: float) -> float:
    """Expected loss in nats a token: 1.69 + 406.4 / N^0.34 + 410.7 / D^0.28."""
    return float(1.69 + 406.4 / parameters**0.34 + 410.7 / tokens**0.28)


class ConsultantDevice(IdsOnly, SpeculativeDevice):
    """Drafts ~ q; the server needs ids alone."""


@dataclass(frozen=True, slots=True)
class Consultant(Method):
    """Consultant decoding (LOSSY): drafts are kept while the target finds them likely.

    Attributes:
        epsilon: largest smoothed negative log-likelihood in nats, or "chinchilla".
        beta: smoothing; 0 looks at the token alone.
        parameters, tokens: N and D of the target, for "chinchilla".
    """

    name: ClassVar[str] = "consultant"
    lossless: ClassVar[bool] = False

    epsilon: float | str = 2.0
    beta: float = 0.2
    parameters: float = 0.0
    tokens: float = 0.0

    def __post_init__(self) -> None:
        if self.epsilon == CHINCHILLA:
            for name, value in (("parameters", self.parameters), ("tokens", self.tokens)):
                if not is_number(value) or value <= 0:
                    raise InvalidRequest(
                        f"epsilon 'chinchilla' needs {name} of the target, a positive number; "
                        f"got {value!r}",
                        field=name,
                    )
        elif isinstance(self.epsilon, str) or not is_number(self.epsilon) or self.epsilon <= 0:
            raise InvalidRequest(
                f"epsilon is {self.epsilon!r}; it must be a positive number of nats, or "
                f"'chinchilla'",
                field="epsilon",
            )
        if not is_number(self.beta) or not 0 <= self.beta < 1:
            raise InvalidRequest(f"beta is {self.beta!r}; it must be within [0, 1)", field="beta")

    @property
    def threshold(self) -> float:
        """Epsilon in nats."""
        if self.epsilon == CHINCHILLA:
            return chinchilla_loss(self.parameters, self.tokens)
        return float(self.epsilon)

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        return ConsultantDevice(context)
