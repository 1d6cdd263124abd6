"""How the origins of a text differ without colour, in print and for screen readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cosd_app.state import Span
from edge_sdk.text.tokens import Origin, Token
from edge_sdk.vocab.utf8 import Utf8Decoder


@dataclass(frozen=True, slots=True)
class Mark:
    """How text of one origin is told apart.

    Attributes:
        name: for legends and screen readers.
        meaning: a sentence for people who see it first.
        before, after: around the text where there is neither colour nor style.
    """

    name: str
    meaning: str
    before: str
    after: str


MARKS: Final = {
    Origin.ACCEPTED: Mark("drafted here", "Drafted on this device, accepted by the server", "", ""),
    Origin.SETTLED: Mark("settled", "Corrected or added after the server's check", "[", "]"),
    Origin.SERVER: Mark("server", "Written by the server alone", "{", "}"),
    Origin.UNVERIFIED: Mark("unverified", "Kept without asking the server", "<", ">"),
}


def marked(spans: Sequence[Span]) -> str:
    """The text with marks around what is not plain accepted draft."""
    return "".join(
        f"{MARKS[span.origin].before}{span.text}{MARKS[span.origin].after}" for span in spans
    )


def spoken(spans: Sequence[Span]) -> str:
    """How much of a text has which origin, in words."""
    total = sum(len(span.text) for span in spans)
    if total == 0:
        return "no text yet"
    shares = []
    for origin, mark in MARKS.items():
        size = sum(len(span.text) for span in spans if span.origin is origin)
        if size:
            shares.append(f"{round(100 * size / total)} percent {mark.name}")
    return ", ".join(shares)


class Spans:
    """The text as spans, as tokens come: the same characters as the SDK's text, since both
    decode the same bytes; a character belongs to the token that completes it.

    Args:
        before: text that this one goes on from.
    """

    def __init__(self, before: Sequence[Span] = ()) -> None:
        self._decoder = Utf8Decoder()
        self._spans = list(before)

    def feed(self, tokens: Sequence[Token]) -> None:
        """Add tokens of a text."""
        for token in tokens:
            self._add(self._decoder.feed(token.data), token.origin)

    def close(self) -> None:
        """The text is over: what is left of a broken character is shown as such."""
        last = self._spans[-1].origin if self._spans else Origin.SERVER
        self._add(self._decoder.flush(), last)

    def __call__(self) -> tuple[Span, ...]:
        return tuple(self._spans)

    def _add(self, text: str, origin: Origin) -> None:
        if not text:
            return
        if self._spans and self._spans[-1].origin is origin:
            self._spans[-1] = Span(self._spans[-1].text + text, origin)
        else:
            self._spans.append(Span(text, origin))
