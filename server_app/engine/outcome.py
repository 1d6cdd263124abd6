"""What a coroutine awaits of the engine thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Self

log = logging.getLogger(__name__)


class Outcome:
    """A result that comes from another thread. Made on the event loop that awaits it."""

    __slots__ = ("_future", "_loop")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] | None = self._loop.create_future()

    @classmethod
    def ignored(cls) -> Self:
        """One that nobody awaits."""
        outcome = cls.__new__(cls)
        outcome._loop = outcome._future = None
        return outcome

    async def wait(self) -> Any:
        assert self._future is not None
        return await self._future

    @staticmethod
    def deliver(outcomes: Sequence[tuple[Outcome, Any]], *, failed: bool = False) -> None:
        """Set results, or errors, from any thread; each event loop is woken once."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
        for outcome, result in outcomes:
            if outcome._loop is not None and outcome._future is not None:
                by_loop.setdefault(outcome._loop, []).append((outcome._future, result))
        for loop, settled in by_loop.items():
            try:
                loop.call_soon_threadsafe(_settle, settled, failed)
            except RuntimeError:
                log.debug("a waiting event loop was closed")


def _settle(settled: Sequence[tuple[asyncio.Future[Any], Any]], failed: bool) -> None:
    for future, result in settled:
        if future.done():
            continue
        if failed:
            future.set_exception(result)
        else:
            future.set_result(result)
