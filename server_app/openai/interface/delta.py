"""Some more of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Delta:
    """Some more of a text.

    Attributes:
        index: which of the request's texts.
        text: whole characters, perhaps none.
        finish_reason: set with the last one.
    """

    index: int
    text: str
    finish_reason: FinishReason | None = None
