"""What the link to the server is like, from the requests that were made anyway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SMALL: Final = 4096  # bytes of an exchange that takes a round trip and hardly more
_LARGE: Final = 65536  # bytes of an exchange whose time is mostly the rate
_ASSUMED_RATE: Final = 10e6  # bits a second, until something large has crossed


@dataclass(frozen=True, slots=True)
class Link:
    """Attributes:
    round_trip: seconds of a small exchange, the server's own time taken off.
    bits_per_second: rate of large ones.
    """

    round_trip: float = 0.0
    bits_per_second: float = _ASSUMED_RATE


class LinkMeter:
    """The best that was seen of either: what is above it was the server or a passing delay."""

    def __init__(self) -> None:
        self._round_trip: float | None = None
        self._rate: float | None = None

    def note(self, seconds: float, size: int) -> None:
        """Note an exchange of `size` bytes up and down that took so long."""
        if size <= _SMALL and seconds > 0:
            self._round_trip = min(seconds, self._round_trip or seconds)
        elif size >= _LARGE:
            moving = seconds - (self._round_trip or 0.0)
            if moving > 0:
                self._rate = max(8 * size / moving, self._rate or 0.0)

    @property
    def link(self) -> Link:
        return Link(self._round_trip or 0.0, self._rate or _ASSUMED_RATE)
