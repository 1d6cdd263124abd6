"""Sessions and vocabulary pairs that the server holds."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from edge_sdk.errors import ServerUnavailable, SessionLost
from server_app.engine.ledger import Ledger
from server_app.engine.session import Session


@dataclass(slots=True)
class Held:
    """A session with its ledger.

    Attributes:
        open_digest: digest of the request that opened it, so that the same one may be sent
            again.
        used: time of the last use (monotonic seconds).
        busy: requests in progress; a busy session is not evicted.
        stream: number of the newest token stream; an older one ends.
        turn: held by whatever reads or changes the session, since a stream goes on beside
            the numbered requests.
        gone: it was closed or evicted.
    """

    session: Session
    ledger: Ledger
    open_digest: bytes
    reply: bytes
    used: float = field(default_factory=time.monotonic)
    busy: int = 0
    stream: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    gone: bool = False

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the session from being evicted while a request is in progress."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1
            self.used = time.monotonic()


class SessionStore:
    """Sessions by (owner, id); the least recently used go when there are too many.

    Args:
        limit: most sessions.
        ttl: seconds an unused session is kept.
    """

    def __init__(self, *, limit: int, ttl: float) -> None:
        self._limit = limit
        self._ttl = ttl
        self._held: OrderedDict[tuple[str, str], Held] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def active(self, seconds: float) -> int:
        """Sessions with a request in progress, or used in the last `seconds`."""
        since = time.monotonic() - seconds
        return sum(held.busy > 0 or held.used >= since for held in self._held.values())

    def get(self, owner: str, session_id: str) -> Held:
        """Raises:
        SessionLost: no such session of this owner.
        """
        held = self.find(owner, session_id)
        if held is None:
            raise SessionLost("the session is not here (any more); open it again")
        held.used = time.monotonic()
        self._held.move_to_end((owner, session_id))
        return held

    def find(self, owner: str, session_id: str) -> Held | None:
        return self._held.get((owner, session_id))

    def names(self) -> list[tuple[str, str]]:
        """Owner and id of every session, the least recently used first."""
        return list(self._held)

    def count(self, owner: str) -> int:
        """Sessions of an owner."""
        return sum(name == owner for name, _ in self._held)

    def discard(self, held: Held) -> None:
        """Drop this very session, if it is still held."""
        for key, other in self._held.items():
            if other is held:
                del self._held[key]
                return

    def idle_of(self, owner: str, seconds: float) -> Held | None:
        """Take out the owner's session that was not used for longest, if that is so long."""
        for key, held in self._held.items():
            if key[0] == owner and held.busy == 0:
                if time.monotonic() - held.used < seconds:
                    return None
                return self._held.pop(key)
        return None

    def add(self, owner: str, session_id: str, held: Held) -> list[Held]:
        """Add a session; returns those evicted for it.

        Raises:
            ServerUnavailable: every session is in use.
        """
        gone = self.expire(room=1)
        if len(self._held) >= self._limit:
            raise ServerUnavailable(
                f"all {self._limit} sessions of this server are in use; try again shortly",
                retry_after=1.0,
            )
        self._held[(owner, session_id)] = held
        return gone

    def pop(self, owner: str, session_id: str) -> Held | None:
        return self._held.pop((owner, session_id), None)

    def expire(self, *, room: int = 0) -> list[Held]:
        """Drop sessions past their time, and the oldest until there is `room` for more."""
        now = time.monotonic()
        gone: list[Held] = []
        for key, held in list(self._held.items()):
            over = len(self._held) + room > self._limit
            if held.busy == 0 and (over or now - held.used >= self._ttl):
                gone.append(self._held.pop(key))
        return gone
