"""What a decoding method sends and how often it is refused, as expected and as measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edge_sdk.adapt.estimates import Line, Mean

_REQUEST: Final = 280.0  # bytes of a request without drafts, framing included
_REPLY: Final = 150.0  # bytes of a reply's framing


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A method by the measurements of docs/methods.md, on the default pair.

    Attributes:
        token_bytes: of a request for each drafted token.
        reply_bytes: of a round's reply body, refused or not, on average.
        refusals: how much oftener than by `hybrid`, min(1, p/q), a draft is refused, as
            1 + refusals * temperature.
        asks: further round trips a round.
    """

    token_bytes: float
    reply_bytes: float
    refusals: float = 0.0
    asks: float = 0.0


# Lossless methods that may be the fastest at a temperature above 0. `upload` and `full` accept
# as `hybrid` does and send more, so they never are.
EXPECTED: Final[Mapping[str, Expected]] = {
    "hybrid": Expected(token_bytes=8.25, reply_bytes=19.0),
    "candidates": Expected(token_bytes=8.25, reply_bytes=16.5, asks=0.018),
    "coupled": Expected(token_bytes=4.5, reply_bytes=6.5, refusals=0.15),
    "greedy": Expected(token_bytes=4.5, reply_bytes=6.5),
}


class Traffic:
    """What one method sends.

    Args:
        method: name of the method; one that is not known is taken to be like `hybrid`.
        like: another one that was measured: framing is the same for all.
    """

    def __init__(self, method: str, *, like: Traffic | None = None) -> None:
        self.expected = EXPECTED.get(method, EXPECTED["hybrid"])
        request = _REQUEST if like is None else like.up[0]
        framing = _REPLY
        if like is not None:
            # What is above the usual framing is the other method's own.
            framing = min(max(like.down - like.expected.reply_bytes, 0.0), _REPLY)
        self._up = Line((request, self.expected.token_bytes), (200.0, 4.0), floor=2.0)
        self._down = Mean(framing + self.expected.reply_bytes)

    def note(self, *, up_bytes: int, down_bytes: int, tokens: int) -> None:
        """Take in a round of so many drafted tokens."""
        self._up.note((1.0, float(tokens)), up_bytes)
        self._down.note(down_bytes)

    @property
    def up(self) -> tuple[float, float]:
        """Bytes of a request without drafts, and of each drafted token."""
        request, token = self._up.values
        return request, token

    @property
    def down(self) -> float:
        """Bytes of a reply."""
        return self._down.value

    def refusals(self, temperature: float) -> float:
        """How much oftener than by `hybrid` a draft is refused."""
        return 1 + self.expected.refusals * temperature
