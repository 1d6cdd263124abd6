"""What a decoding method is, as the device sees it.

A method is a small value with its options. It makes the device half of one generation;
the server makes its own half from the name and the options (`server_app.methods`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Coins
from edge_sdk.errors import InvalidRequest
from edge_sdk.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Drafted:
    """One drafted token.

    Attributes:
        rank: its rank in V_C.
        law: numerators of q_i on the grid of 2**-24, int32 [|V_C|]; None where the method
            needs no q.
    """

    rank: int
    law: NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True)
class DeviceContext:
    """What a device half works with.

    Attributes:
        target_ids: target id by rank [|V_C|].
        target_size: ids of the target's vocabulary.
        sampling: transforms of the law.
        coins: the device's coins of this generation.
    """

    target_ids: NDArray[np.int64]
    target_size: int
    sampling: Sampling
    coins: Coins


class DeviceHalf(ABC):
    """The device's part of one generation. Pure: it neither computes logits nor does I/O."""

    def __init__(self, context: DeviceContext) -> None:
        self.context = context

    @abstractmethod
    def draft(
        self,
        logits: NDArray[np.float32],
        *,
        position: int,
        block: int,
        seen: NDArray[np.int64] | None = None,
    ) -> Drafted:
        """Draw one token.

        Args:
            logits: draft logits on V_C [|V_C|], by rank.
            position: generated target tokens before this one.
            block: sequence number of the block it goes into.
            seen: ranks already in prompt or text, for the penalty.
        """

    @abstractmethod
    def pack(self, drafted: Sequence[Drafted]) -> bytes:
        """What a verify carries of the block."""

    @abstractmethod
    def settle(self, rejection: bytes, drafted: Drafted, *, position: int) -> int:
        """Target id that replaces a rejected token.

        Args:
            rejection: what the server sent for it.
            drafted: the rejected token.
            position: generated target tokens before it.

        Raises:
            ProtocolError: the server's reply is impossible.
        """


@dataclass(frozen=True, slots=True)
class Method(ABC):
    """A decoding method and its options."""

    name: ClassVar[str]
    lossless: ClassVar[bool]
    drafts: ClassVar[bool] = True

    def options(self) -> dict[str, Any]:
        """Options as the wire carries them."""
        return asdict(self)

    def check(self, sampling: Sampling) -> None:
        """Refuse sampling settings that the method cannot honour.

        Raises:
            InvalidRequest: with the reason.
        """
        return

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        """The device half of one generation."""
        raise InvalidRequest(f"method {self.name!r} does not draft", field="method")
