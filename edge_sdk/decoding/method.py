"""What a decoding method is, as the device sees it.

A method is a small value with its options. It makes the device half of one generation;
the server makes its own half from the name and the options (`server_app.methods`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edge_sdk.arguments import is_finite, shown
from edge_sdk.decoding.coins import Coins
from edge_sdk.decoding.grid import GridLaw
from edge_sdk.errors import InvalidRequest
from edge_sdk.link import Link
from edge_sdk.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Drafted:
    """One drafted token.

    Attributes:
        rank: its rank in V_C.
        law: q_i on the grid of 2**-24; None where the method needs no q.
        sure: the method keeps it without asking the server.
    """

    rank: int
    law: GridLaw | None = None
    sure: bool = False


@dataclass(frozen=True, slots=True)
class DeviceContext:
    """What a device half works with.

    Attributes:
        target_ids: target id by rank [|V_C|].
        target_size: ids of the target's vocabulary.
        sampling: transforms of the law.
        coins: the device's coins of this generation.
        seed: seed of the generation.
        token_keys: noise keys of V_C by rank, uint64 [|V_C|]; computed when asked for.
    """

    target_ids: NDArray[np.int64]
    target_size: int
    sampling: Sampling
    coins: Coins
    seed: int
    token_keys: Callable[[], NDArray[np.uint64]]


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
            block: how many times drafting has begun, so that a position drafted again gets
                fresh coins.
            seen: ranks already in prompt or text, for the penalty.
        """

    @abstractmethod
    def pack(self, drafted: Sequence[Drafted]) -> bytes:
        """What a verify carries of the block."""

    @abstractmethod
    def settle(
        self, rejection: bytes, drafted: Drafted, *, position: int, block: int
    ) -> int | None:
        """Target id that replaces a rejected token; None if the server must send more.

        Args:
            rejection: what the server sent for it.
            drafted: the rejected token.
            position: generated target tokens before it.
            block: 0 for what came with the verdict, then 1, 2, ... for what was asked for.

        Raises:
            ProtocolError: the server's reply is impossible.
        """


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuse an option that is none of the choices.

    Raises:
        InvalidRequest: naming them.
    """
    if not isinstance(value, str) or value not in choices:
        raise InvalidRequest(
            f"{name} {shown(value)} is not one of {', '.join(choices)}", field=name
        )


def is_number(value: object) -> bool:
    """Whether an option is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value)


@dataclass(frozen=True, slots=True)
class Method(ABC):
    """A decoding method and its options."""

    name: ClassVar[str]
    lossless: ClassVar[bool]
    drafts: ClassVar[bool] = True
    keeps_sure: ClassVar[bool] = False

    def options(self) -> dict[str, Any]:
        """Options as the wire carries them."""
        return asdict(self)

    def check(self, sampling: Sampling) -> None:
        """Refuse sampling settings that the method cannot honour.

        Raises:
            InvalidRequest: with the reason.
        """
        return

    def over(self, link: Link) -> Method:
        """The method with what it leaves to the link filled in."""
        return self

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        """The device half of one generation."""
        raise InvalidRequest(f"method {self.name!r} does not draft", field="method")
