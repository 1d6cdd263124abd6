"""A whole text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_sdk.stats import Stats
from edge_sdk.text.tokens import Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What `complete` returns.

    Attributes:
        text: the text, without the stop string that may have ended it.
        tokens: its target tokens; those of a stop string are among them.
        finish: why it is complete: "end", "length", "context" or "stop".
        stats: what it cost.
        seed: root of every coin; with the same seed and a fixed gamma the text comes again.
    """

    text: str
    tokens: Sequence[Token]
    finish: str
    stats: Stats
    seed: int

    def __str__(self) -> str:
        return self.text
