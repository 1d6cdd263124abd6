"""From tokens to the text that leaves: whole characters, cut at stop strings."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from edge_sdk.text.tokens import Token
from edge_sdk.vocab.stop import StopStrings
from edge_sdk.vocab.utf8 import Utf8Decoder


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of the text as it settles.

    Attributes:
        text: whole characters; may be empty while a character or a stop string is incomplete.
        tokens: target tokens that became certain with it, in order.
        retracted: characters at the end of what was shown that do not stand, taken back before
            `text` follows; more than 0 only with `offline="draft"`.
        verified: False if some of `text` is the draft's alone, with `offline="draft"`.
    """

    text: str
    tokens: Sequence[Token]
    retracted: int = 0
    verified: bool = True


class Transcript:
    """The text so far.

    Attributes:
        text: what has been released, and stands.
        unverified: what has been released after it and is the draft's alone.
        tokens: every target token, released or held back.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self.text = ""
        self.unverified = ""
        self.tokens: list[Token] = []
        self._decoder = Utf8Decoder()
        self._stop = StopStrings(stop)
        self._ends: list[int] = []

    @property
    def stopped(self) -> bool:
        """A stop string is complete."""
        return self._stop.match is not None

    def feed(self, tokens: Sequence[Token], unverified: Sequence[Token] = ()) -> Piece:
        """Add tokens; those after a stop string are left out.

        Args:
            unverified: tokens that may follow them. What was shown of such tokens before and
                is not the same now is taken back.
        """
        text = ""
        taken = []
        for token in tokens:
            if self.stopped:
                break
            taken.append(token)
            text += self._stop.feed(self._decoder.feed(token.data))
            # A character whose first bytes came with this token ends after it.
            self._ends.append(self._decoder.characters + bool(self._decoder.pending))
        return self._release(text, taken, () if self.stopped else unverified)

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

    def _release(self, text: str, tokens: list[Token], unverified: Sequence[Token] = ()) -> Piece:
        shown, now = self.unverified, text + self._foretold(unverified)
        pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(shown, now, strict=False))
        same = sum(1 for _ in pairs)
        self.text += text
        self.tokens += tokens
        self.unverified = now[len(text) :]
        return Piece(
            now[same:],
            tokens,
            retracted=len(shown) - same,
            verified=len(now) <= max(same, len(text)),
        )

    def _foretold(self, tokens: Sequence[Token]) -> str:
        """Text of tokens that may follow."""
        if not tokens:
            return ""
        decoder, stop = copy.deepcopy((self._decoder, self._stop))
        return "".join(stop.feed(decoder.feed(token.data)) for token in tokens)
