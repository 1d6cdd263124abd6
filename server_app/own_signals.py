"""A uvicorn server that ends in its own way."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Final

import uvicorn

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class OwnSignals(uvicorn.Server):
    """A subclass says in `handle_exit` what a signal does.

    Attributes:
        loop: the event loop it runs on; None before.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.loop: asyncio.AbstractEventLoop | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals over for as long as it runs. uvicorn's own way sends them again at
        the end, which would make every end look like a failure."""
        self.loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
