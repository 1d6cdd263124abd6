"""The process of a gateway: signals and the end."""

from __future__ import annotations

import asyncio
import logging
import signal
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from server_app.gateway.pool import Pool
from server_app.own_signals import OwnSignals

log = logging.getLogger("server_app.gateway")

_GRACE: Final = 3.0  # seconds for texts that are being written when the gateway ends
_CUT_OFF: Final = 2  # seconds for what they are told then
_KEEP_ALIVE: Final = 75  # seconds an idle connection is kept


class Process(OwnSignals):
    """Serves until a signal. Requests under way then have a moment to end, and those that are
    left are told that the gateway goes down; a second signal does not wait.

    Args:
        pool: of the app; closed when it ends.

    Attributes:
        interrupted: it was Ctrl-C that ended it.
    """

    def __init__(self, app: FastAPI, pool: Pool) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                ws="none",
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=_CUT_OFF,
            )
        )
        self._pool = pool
        self._ending: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self.interrupted = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.interrupted = self.interrupted or sig == signal.SIGINT
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self._end_soon)

    def _end_soon(self) -> None:
        if self._ending is None:
            log.info(
                "going down, %d requests under way; a second signal does not wait for them",
                self._pool.requests,
            )
            self._ending = asyncio.ensure_future(self._end())
        else:
            self._hurry.set()

    async def _end(self) -> None:
        idle = asyncio.ensure_future(self._pool.drained())
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait((idle, hurry), timeout=_GRACE, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        await self._pool.aclose()
        # What was under way is now told so, each as its reply has it.
        await asyncio.wait((idle,), timeout=_CUT_OFF)
        idle.cancel()
        self.should_exit = True
