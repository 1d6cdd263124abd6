"""Figures of a text while it is written."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from cosd_app.state import Figures
from edge_sdk.stats import Stats

POINTS: Final = 60  # of the chart
INTERVAL: Final = 0.5  # seconds a point


class LiveFigures:
    """Totals of the SDK, and the speed of the last moments.

    Args:
        clock: seconds, never backwards.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin = clock()
        self._point = (self._begin, 0)
        self._rates: deque[float] = deque(maxlen=POINTS)

    def __call__(self, stats: Stats, *, over: bool = False) -> Figures:
        """Figures now. Call it at every piece.

        Args:
            over: the text is complete; its last moment is a point too.
        """
        now = self._clock()
        since, tokens = self._point
        if now - since >= INTERVAL or (over and now > since and stats.tokens > tokens):
            self._rates.append((stats.tokens - tokens) / (now - since))
            self._point = (now, stats.tokens)
        elapsed = now - self._begin
        return Figures(
            tokens=stats.tokens,
            tokens_per_second=stats.tokens / elapsed if elapsed > 0 else 0.0,
            acceptance=stats.acceptance if stats.examined else None,
            up_bytes=stats.wire_up_bytes,
            down_bytes=stats.wire_down_bytes,
            round_trip=stats.round_seconds / stats.rounds if stats.rounds else None,
            rates=tuple(self._rates),
        )
