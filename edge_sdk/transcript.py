"""From tokens to the text that leaves: whole characters, cut at stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_sdk.tokens import Token
from edge_sdk.vocab.stop import StopStrings
from edge_sdk.vocab.utf8 import Utf8Decoder


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of the text as it settles.

    Attributes:
        text: whole characters; may be empty while a character or a stop string is incomplete.
        tokens: target tokens that became certain with it, in order.
    """

    text: str
    tokens: Sequence[Token]


class Transcript:
    """The text so far.

    Attributes:
        text: what has been released.
        tokens: every target token, released or held back.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self.text = ""
        self.tokens: list[Token] = []
        self._decoder = Utf8Decoder()
        self._stop = StopStrings(stop)
        self._ends: list[int] = []

    @property
    def stopped(self) -> bool:
        """A stop string is complete."""
        return self._stop.match is not None

    def feed(self, tokens: Sequence[Token]) -> Piece:
        """Add tokens; those after a stop string are left out."""
        text = ""
        taken = []
        for token in tokens:
            if self.stopped:
                break
            taken.append(token)
            text += self._stop.feed(self._decoder.feed(token.data))
            # A character whose first bytes came with this token ends after it.
            self._ends.append(self._decoder.characters + bool(self._decoder.pending))
        return self._release(text, taken)

    def close(self) -> Piece:
        """Release what was held back, once no more can come."""
        text = ""
        if not self.stopped:
            text = self._stop.feed(self._decoder.flush()) + self._stop.flush()
        return self._release(text, [])

    @property
    def tokens_kept(self) -> int:
        """Tokens that lie wholly before the stop string; all of them without one."""
        match = self._stop.match
        if match is None:
            return len(self.tokens)
        return sum(end <= match.cut for end in self._ends)

    def _release(self, text: str, tokens: list[Token]) -> Piece:
        self.text += text
        self.tokens += tokens
        return Piece(text, tokens)
