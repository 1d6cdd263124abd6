"""How a text is drafted: with fixed settings, or as a controller finds best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edge_sdk.adapt.plan import Plan


class Control(Protocol):
    """What decides; `edge_sdk.adapt.Controller` learns from what it is told."""

    def plan(self, *, remaining: int) -> Plan: ...

    def enough(self, confidences: Sequence[float]) -> bool: ...

    def drafted(self, *, seconds: float, tokens: int) -> None: ...

    def round_trip(
        self,
        *,
        seconds: float,
        server_seconds: float,
        up_bytes: int,
        down_bytes: int,
        tokens: int,
        alone: bool,
    ) -> None: ...

    def verdict(
        self,
        *,
        examined: int,
        accepted: int,
        confidences: Sequence[float] = (),
        settled: bool,
        seconds: float,
    ) -> None: ...

    def streamed(self, *, tokens: int, seconds: float, first_seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same for every block.

    Args:
        gamma: drafted tokens of a block.
        window: blocks in flight, the one being drafted included; 1 sends one at a time.
    """

    gamma: int
    window: int = 1

    def plan(self, *, remaining: int) -> Plan:
        return Plan(speculate=True, gamma=self.gamma, window=self.window)

    def enough(self, confidences: Sequence[float]) -> bool:
        return False

    def drafted(self, *, seconds: float, tokens: int) -> None:
        return

    def round_trip(self, **measured: object) -> None:
        return

    def verdict(self, **measured: object) -> None:
        return

    def streamed(self, *, tokens: int, seconds: float, first_seconds: float) -> None:
        return
