"""Requests that are sent again."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from edge_sdk.errors import (
    ConnectionFailed,
    CosdError,
    RateLimited,
    ServerUnavailable,
    TimedOut,
)
from edge_sdk.waiting import MAX_RETRY_AFTER, Retry, Timeouts

log = logging.getLogger(__name__)

Wait = Literal["reply", "setup"]  # which of the `Timeouts` a request has

R = TypeVar("R")


class Tries:
    """Sends requests again as `Retry` says, and counts it.

    Attributes:
        timeouts: how long a request may take.
        retries: requests sent again.
    """

    def __init__(self, retry: Retry, timeouts: Timeouts) -> None:
        self._retry = retry
        self.timeouts = timeouts
        self.retries = 0

    async def until_done(self, once: Callable[[], Awaitable[R]], *, wait: Wait) -> R:
        """What `once` returns when it succeeds.

        Raises:
            CosdError: of the last try.
        """
        failures = 0
        begin = time.monotonic()
        while True:
            try:
                return await once()
            except (ConnectionFailed, TimedOut, RateLimited, ServerUnavailable) as error:
                failures += 1
                seconds = self._wait(failures, error)
                if failures >= self._retry.attempts or seconds > MAX_RETRY_AFTER:
                    raise
                # A server that hangs from the start is told of after the second try.
                late = time.monotonic() - begin > 1.5 * self.timeouts.setup
                if late and wait == "setup" and isinstance(error, TimedOut):
                    raise
                log.info("sending again in %.2f s: %s", seconds, error)
            await asyncio.sleep(seconds)
            self.retries += 1

    async def in_time(self, wait: Wait, work: Awaitable[R], *, asked: str) -> R:
        """Bound the whole, which a server that sends a byte now and then would not end.

        Args:
            asked: of whom and for what, for the error.

        Raises:
            TimedOut: it took too long.
        """
        seconds: float = getattr(self.timeouts, wait)
        try:
            async with asyncio.timeout(seconds) as bound:
                return await work
        except TimeoutError as error:
            if not bound.expired():
                raise
            server, _, path = asked.partition(" ")
            raise TimedOut(
                f"{server} did not answer {path} in full within {seconds:g} s; is it "
                f"overloaded? A longer time is set with Timeouts({wait}=...)"
            ) from error

    def _wait(self, failures: int, error: CosdError) -> float:
        # Clients that lost the same server must not all come back at once.
        jitter = random.uniform(0.75, 1.25)
        return max(error.retry_after or 0.0, self._retry.delay(failures) * jitter)
