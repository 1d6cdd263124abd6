"""What a text does while its server cannot be reached."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar, get_args

from edge_sdk.arguments import kind, shown
from edge_sdk.errors import ConnectionFailed, CosdError, InvalidRequest, ServerAway, TimedOut
from edge_sdk.waiting import MAX_RETRY_AFTER, Retry

log = logging.getLogger(__name__)

OfflinePolicy = Literal["wait", "fail", "draft"]
OnLink = Callable[[bool], object]

_LEAST_PAUSE: Final = 0.05  # seconds, however short the caller's retries are

R = TypeVar("R")


class Outage:
    """Whether the link is down, for all texts of a client.

    It is down once a request was tried as often as `Retry` says and nothing came back, or only
    that the server is starting or going down, and up again with the next reply.

    Args:
        policy: what is done then, see `EdgeClient`.
        on_link: called in the event loop with False when the link is down, with True when it
            is up again.
    """

    def __init__(self, policy: OfflinePolicy, retry: Retry, on_link: OnLink | None = None) -> None:
        given: object = policy
        if given not in get_args(OfflinePolicy):
            raise InvalidRequest(
                f"offline is {shown(given)} ({kind(given)}); give 'wait', 'fail' or 'draft'",
                field="offline",
            )
        if on_link is not None and not callable(on_link):
            raise InvalidRequest(
                f"on_link is {shown(on_link)} ({kind(on_link)}); give a function that takes True "
                f"or False",
                field="on_link",
            )
        self.policy: Final = policy
        self._retry = retry
        self._on_link = on_link
        self._down = asyncio.Event()
        self._closed = asyncio.Event()

    @property
    def down(self) -> bool:
        """Nothing comes back at present."""
        return self._down.is_set()

    async def begun(self) -> None:
        """Wait until the link is down."""
        await self._down.wait()

    async def through(self, request: Callable[[], Awaitable[R]]) -> R:
        """What a request returns, made again until the link is back if the policy says so.

        Args:
            request: may be made any number of times.

        Raises:
            CosdError: of the request; `ConnectionFailed`, `TimedOut` and `ServerAway` only by
                the policy "fail".
        """
        while True:
            try:
                reply = await request()
            except (ConnectionFailed, TimedOut, ServerAway) as error:
                await self.endure(error)
            else:
                self.over()
                return reply

    async def endure(self, error: CosdError) -> None:
        """Wait before the next try of what failed with `error`; raise it by the policy "fail"."""
        if self.policy == "fail":
            raise error
        if not self.down:
            self._down.set()
            log.warning("the link is down; trying until it is back: %s", error)
            self._tell(up=False)
        # Clients that lost the same server must not all come back at once.
        pause = max(self._retry.longest, _LEAST_PAUSE) * random.uniform(0.75, 1.25)
        asked = min(error.retry_after or 0.0, MAX_RETRY_AFTER)
        try:
            async with asyncio.timeout(max(asked, pause)):
                await self._closed.wait()
        except TimeoutError:
            return

    def over(self) -> None:
        """A reply came."""
        if self.down:
            self._down.clear()
            log.warning("the link is back")
            self._tell(up=True)

    def close(self) -> None:
        """Wait no longer: the client is closed, and the next try says so."""
        self._closed.set()

    def _tell(self, *, up: bool) -> None:
        if self._on_link is None:
            return
        try:
            self._on_link(up)
        except Exception:
            # The text must not end by what its app does wrong.
            log.exception("on_link failed")
