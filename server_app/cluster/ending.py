"""How `cosd cluster` is told to end."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Final

log = logging.getLogger("server_app")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Ending:
    """Whether a signal came; true once one did. A second one ends the process at once.

    Attributes:
        interrupted: it was Ctrl-C.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self._came = False

    def __bool__(self) -> bool:
        return self._came

    def seconds(self, drain_seconds: float) -> float:
        """How long sessions are still served."""
        return 0.0 if self.interrupted else drain_seconds

    @contextlib.contextmanager
    def by_signals(self) -> Iterator[None]:
        """Take SIGTERM and Ctrl-C over for as long as this lasts."""
        before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            log.warning("ended at once")
            sys.stderr.flush()
            os._exit(128 + number)
        self.interrupted = number == signal.SIGINT
        self._came = True
        log.info("going down; a second signal ends at once")
