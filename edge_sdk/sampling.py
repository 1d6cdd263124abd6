"""How a law is shaped before a token is drawn from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edge_sdk.arguments import integer, number, shown
from edge_sdk.errors import InvalidRequest

_MAX_TOP_K: Final = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Transforms of the target's law, applied in the order of the fields.

    The draft's law gets the same transforms, so that it stays close to the target's.

    Attributes:
        repetition_penalty: logits of ids already in prompt or text are divided by it when
            positive and multiplied when negative (Keskar et al. 2019); 1 is off.
        temperature: 0 takes the most likely token; 1 leaves the law as it is. Below 0.001,
            where float32 logits would overflow, only 0 is allowed.
        top_k: keep the k most likely ids (more if the k-th is tied); 0 is off.
        top_p: keep the fewest most likely ids whose mass reaches top_p; 1 is off.
        min_p: keep ids at least min_p times as likely as the most likely one; 0 is off.

    Raises:
        InvalidRequest: a value is out of its range.
    """

    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        for name in ("repetition_penalty", "temperature", "top_p", "min_p"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        object.__setattr__(self, "top_k", integer("top_k", self.top_k))
        _require(
            0.01 <= self.repetition_penalty <= 100,
            "repetition_penalty",
            self.repetition_penalty,
            "within [0.01, 100]",
        )
        _require(
            self.temperature == 0 or 0.001 <= self.temperature <= 100,
            "temperature",
            self.temperature,
            "0 or within [0.001, 100]",
        )
        _require(
            0 <= self.top_k <= _MAX_TOP_K,
            "top_k",
            self.top_k,
            "0 (off) or a positive integer up to 2**31",
        )
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "within (0, 1]")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "within [0, 1]")

    @property
    def greedy(self) -> bool:
        """Every law is one-hot."""
        return self.temperature == 0

    @property
    def truncates(self) -> bool:
        """Some ids may be cut, so one probability needs the whole row."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


def _require(holds: bool, name: str, value: float, range_: str) -> None:
    if not holds:
        raise InvalidRequest(f"{name} is {shown(value)}; it must be {range_}", field=name)
