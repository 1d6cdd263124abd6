"""The clients that write a gateway's texts, and the queue before them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from edge_sdk.client import EdgeClient
from edge_sdk.errors import CosdError, ServerUnavailable
from edge_sdk.peer import Card
from server_app.gateway.blame import for_the_asker

GOING_DOWN: Final = "the gateway is going down"

_FIRST_GUESS: Final = 5.0  # seconds of a request, until one has been seen
_MEMORY: Final = 0.2  # share of the newest request in the mean
_LONGEST_WAIT: Final = 60.0  # seconds that a client is told to wait at most


class Pool:
    """Each client has a draft of its own and writes one text at a time; further texts wait.

    Args:
        clients: at least one; closed with this.
        queue: requests that may wait while each client is busy with another one.
    """

    def __init__(self, clients: Sequence[EdgeClient], *, queue: int) -> None:
        self._clients = clients
        # The one that was used last comes first: its draft may be warm.
        self._free = list(clients)
        self._idle = asyncio.Semaphore(len(clients))
        self._most = len(clients) + queue
        self._admitted: set[Admission] = set()
        self._draining = False
        self._over = asyncio.Event()
        self._mean = _FIRST_GUESS

    @property
    def size(self) -> int:
        """Texts that are written at once."""
        return len(self._clients)

    @property
    def requests(self) -> int:
        """Requests that are written or wait."""
        return len(self._admitted)

    @property
    def writing(self) -> int:
        """Texts that are being written."""
        return self.size - len(self._free)

    async def connect(self) -> None:
        """Connect every client; see `EdgeClient.connect`."""
        for client in self._clients:
            await client.connect()

    async def card(self) -> Card:
        """What the server serves; connects if there was no connection yet.

        Raises:
            CosdError: the server cannot be talked to; of a class that is right for whoever
                asked the gateway.
        """
        client = self._clients[0]
        try:
            await client.connect()
        except CosdError as error:
            raise for_the_asker(error) from error
        return client.card

    def admit(self, stop: Callable[[CosdError], Awaitable[None]]) -> Admission:
        """Take a request in.

        Args:
            stop: ends its texts with an error.

        Raises:
            ServerUnavailable: too many wait, and it tells when to try again; or the pool ends.
        """
        if self._draining:
            raise ServerUnavailable(GOING_DOWN)
        if self.requests >= self._most:
            turns = (self.requests - self.size + 1) / self.size
            raise ServerUnavailable(
                f"{self.requests} requests are being written or wait, as many as this gateway "
                f"takes; try again later, or start it with a longer --queue or more --drafts",
                retry_after=min(_LONGEST_WAIT, max(1.0, turns * self._mean)),
            )
        admission = Admission(self, stop)
        self._admitted.add(admission)
        return admission

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[EdgeClient]:
        """A client that is free, until the end; in order of asking."""
        async with self._idle:
            client = self._free.pop()
            try:
                yield client
            finally:
                self._free.append(client)

    async def drained(self) -> None:
        """Take no further requests, and wait for the end of those there are."""
        self._draining = True
        while self._admitted:
            self._over.clear()
            await self._over.wait()

    async def aclose(self) -> None:
        """End what is under way with an error, and close every client. Idempotent."""
        self._draining = True
        for admission in list(self._admitted):
            await admission.stop(ServerUnavailable(GOING_DOWN))
        for client in self._clients:
            await client.aclose()

    def over(self, admission: Admission, seconds: float) -> None:
        """A request is over that took so long."""
        self._admitted.discard(admission)
        self._over.set()
        self._mean += _MEMORY * (seconds - self._mean)


class Admission:
    """The place of one request.

    Attributes:
        stop: ends its texts with an error.
    """

    def __init__(self, pool: Pool, stop: Callable[[CosdError], Awaitable[None]]) -> None:
        self.stop = stop
        self._pool: Pool | None = pool
        self._begin = time.monotonic()

    def end(self) -> None:
        """Give the place back. Idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.over(self, time.monotonic() - self._begin)
