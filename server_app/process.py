"""The process of a server: signals, draining, the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from server_app.boot import Boot
from server_app.own_signals import OwnSignals
from server_app.websocket_options import UVICORN_OPTIONS

log = logging.getLogger("server_app")

CUT_OFF_SECONDS: Final = 5  # for replies on their way when nothing is verified any more


class Process(OwnSignals):
    """Serves while the model loads, and ends in steps.

    The first signal ends a load at once. Later, SIGTERM drains: no new session, those that are
    open are served for `drain_seconds`, then streams are told that the server goes down and what
    is being verified is finished. Ctrl-C does the same without waiting for sessions. A second
    signal ends the process at once.

    Args:
        load: makes the app in a thread; see `Boot`.
        on_ready: called once the app answers.
        keep_alive: seconds an idle connection is kept.
        drain_seconds: see above.

    Attributes:
        interrupted: it was Ctrl-C that ended it.
    """

    def __init__(
        self,
        load: Callable[[Callable[[str], None]], FastAPI],
        *,
        on_ready: Callable[[], None],
        keep_alive: int,
        drain_seconds: float,
    ) -> None:
        self.boot = Boot(load, on_ready=on_ready, on_failure=self._give_up)
        super().__init__(
            uvicorn.Config(
                self.boot,
                log_config=None,
                access_log=False,
                timeout_keep_alive=keep_alive,
                timeout_graceful_shutdown=CUT_OFF_SECONDS,
                **UVICORN_OPTIONS,
            )
        )
        self._drain_seconds = drain_seconds
        self._ending: asyncio.Task[None] | None = None
        self._signals = 0
        self.interrupted = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            self._leave(128 + sig, "ended at once")
        self.interrupted = sig == signal.SIGINT
        if self.boot.app is None:
            # The thread that loads cannot be stopped, and it writes nothing.
            self._leave(130 if self.interrupted else 0, "ended while the model was loading")
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self._begin_to_end)

    def _begin_to_end(self) -> None:
        self._ending = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        # Imported by the app by now; here it would bring torch along.
        from server_app.drain import drain

        app = self.boot.app
        if app is not None:
            log.info("going down; a second signal ends at once")
            await drain(app.state.host, 0.0 if self.interrupted else self._drain_seconds)
        self.should_exit = True

    def _give_up(self) -> None:
        self.should_exit = True

    def _leave(self, status: int, why: str) -> None:
        log.warning("%s", why)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)
