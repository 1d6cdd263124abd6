"""Stop strings over a text that comes in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edge_sdk.arguments import kind, shown
from edge_sdk.errors import InvalidRequest

MAX_STOPS = 64
MAX_STOP_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A stop string was found.

    Attributes:
        stop: the string.
        cut: characters of the whole text before it, all of which have been released.
    """

    stop: str
    cut: int


class StopStrings:
    """Releases text until a stop string is complete.

    Whatever could still begin a stop string is held back, so no part of one is ever released.
    The match is the one whose last character comes first, and of those that end there the
    longest; it does not depend on how the text is cut into pieces.

    Args:
        stops: any number of strings up to `MAX_STOPS`, none of them empty.

    Raises:
        InvalidRequest: too many, too long, or empty.
    """

    def __init__(self, stops: Iterable[str] | None) -> None:
        stops = stop_list(stops)
        if len(stops) > MAX_STOPS:
            raise InvalidRequest(
                f"{len(stops)} stop strings are given, the limit is {MAX_STOPS}", field="stop"
            )
        for stop in stops:
            _check(stop)
        self._stops = tuple(dict.fromkeys(stops))
        self._held = ""
        self._released = 0
        self._match: StopMatch | None = None

    @property
    def match(self) -> StopMatch | None:
        """The stop string that ended the text, if one did."""
        return self._match

    @property
    def held(self) -> str:
        """Text held back."""
        return self._held

    def feed(self, text: str) -> str:
        """Text that may leave now; nothing after a match."""
        if self._match is not None:
            return ""
        buffer = self._held + text
        found = [
            (start + len(stop), start, stop)
            for stop in self._stops
            if (start := buffer.find(stop)) >= 0
        ]
        if found:
            _, start, stop = min(found)
            self._held = ""
            self._match = StopMatch(stop, self._released + start)
            return self._release(buffer[:start])
        hold = max((_overlap(buffer, stop) for stop in self._stops), default=0)
        self._held = buffer[len(buffer) - hold :]
        return self._release(buffer[: len(buffer) - hold])

    def flush(self) -> str:
        """Text held back, once no more can come."""
        held, self._held = self._held, ""
        return self._release(held)

    def _release(self, text: str) -> str:
        self._released += len(text)
        return text


def stop_list(stops: Iterable[str] | None) -> Sequence[str]:
    """Stop strings as a tuple; None is none of them.

    Raises:
        InvalidRequest: it is one string, or nothing that has several.
    """
    if stops is None:
        return ()
    if isinstance(stops, str):
        raise InvalidRequest("stop is one string; give a list of strings", field="stop")
    if isinstance(stops, bytes | type) or not isinstance(stops, Iterable):
        raise InvalidRequest(
            f"stop is {shown(stops)} ({kind(stops)}); give a list of strings", field="stop"
        )
    if isinstance(stops, Sequence):
        return tuple(stops)
    # One more than allowed tells that there are too many; an iterator may have no end.
    return tuple(itertools.islice(stops, MAX_STOPS + 1))


def _check(stop: object) -> None:
    if not isinstance(stop, str) or not 0 < len(stop) <= MAX_STOP_CHARACTERS:
        raise InvalidRequest(
            f"a stop string has 1 to {MAX_STOP_CHARACTERS} characters, not {shown(stop)}",
            field="stop",
        )


def _overlap(text: str, stop: str) -> int:
    """Length of the longest suffix of `text` that begins `stop` and is shorter than it."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
