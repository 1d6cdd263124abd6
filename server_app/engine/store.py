"""Sessions and vocabulary pairs that the server holds."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from edge_sdk.errors import ServerUnavailable, SessionLost
from server_app.engine.ledger import Ledger
from server_app.engine.session import Session

Key = tuple[str, str]  # owner and id of a session

_CLOSED_IDS: Final = 1024  # of an owner, so that what opens one late or twice does nothing


@dataclass(slots=True)
class Held:
    """A session with its ledger.

    Attributes:
        id: the client's name of it, one of its owner's.
        open_digest: digest of the request that opened it, so that the same one may be sent
            again.
        used: time of the last use (monotonic seconds).
        busy: requests in progress; a busy session is not evicted.
        stream: number of the newest token stream; an older one ends.
        turn: held by whatever reads or changes the session, since a stream goes on beside
            the numbered requests.
        gone: it was closed or evicted.
    """

    id: str
    session: Session
    ledger: Ledger
    open_digest: bytes
    reply: bytes
    used: float = field(default_factory=time.monotonic)
    busy: int = 0
    stream: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    gone: bool = False

    @property
    def key(self) -> Key:
        return self.session.owner, self.id

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
    """Sessions by owner and id; the least recently used go when there are too many.

    Args:
        limit: most sessions.
        ttl: seconds an unused session is kept.
    """

    def __init__(self, *, limit: int, ttl: float) -> None:
        self._limit = limit
        self._ttl = ttl
        # Both in order of use.
        self._held: OrderedDict[Key, Held] = OrderedDict()
        self._owned: dict[str, OrderedDict[Key, Held]] = {}
        self._closed: dict[str, OrderedDict[str, None]] = {}

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
        self._held.move_to_end(held.key)
        self._owned[owner].move_to_end(held.key)
        return held

    def find(self, owner: str, session_id: str) -> Held | None:
        return self._held.get((owner, session_id))

    def names(self) -> list[Key]:
        """Owner and id of every session, the least recently used first."""
        return list(self._held)

    def count(self, owner: str) -> int:
        """Sessions of an owner."""
        return len(self._owned.get(owner, ()))

    def discard(self, held: Held) -> None:
        """Drop this very session, if it is still held."""
        if self._held.get(held.key) is held:
            self._take(held)

    def idle_of(self, owner: str, seconds: float) -> Held | None:
        """Take out the owner's session that was not used for longest, if that is so long."""
        idle = _first_idle(self._owned.get(owner, {}))
        if idle is None or time.monotonic() - idle.used < seconds:
            return None
        return self._take(idle)

    def add(self, held: Held) -> Held | None:
        """Add a session; returns the one that had to go for it.

        Raises:
            ServerUnavailable: every session is in use.
        """
        gone = None
        if len(self._held) >= self._limit:
            gone = _first_idle(self._held)
            if gone is None:
                raise ServerUnavailable(
                    f"all {self._limit} sessions of this server are in use; try again shortly",
                    retry_after=1.0,
                )
            self._take(gone)
        self._held[held.key] = held
        self._owned.setdefault(held.session.owner, OrderedDict())[held.key] = held
        return gone

    def close(self, owner: str, session_id: str) -> Held | None:
        """Take out what its owner has closed, and remember that for a while."""
        closed = self._closed.setdefault(owner, OrderedDict())
        closed[session_id] = None
        closed.move_to_end(session_id)
        if len(closed) > _CLOSED_IDS:
            closed.popitem(last=False)
        held = self.find(owner, session_id)
        return None if held is None else self._take(held)

    def was_closed(self, owner: str, session_id: str) -> bool:
        """Its owner closed that session lately, here or before it was opened."""
        return session_id in self._closed.get(owner, ())

    def expire(self) -> list[Held]:
        """Drop sessions past their time."""
        since = time.monotonic() - self._ttl
        over = [held for held in self._held.values() if held.busy == 0 and held.used <= since]
        return [self._take(held) for held in over]

    def _take(self, held: Held) -> Held:
        owned = self._owned[held.session.owner]
        del self._held[held.key], owned[held.key]
        if not owned:
            del self._owned[held.session.owner]
        return held


def _first_idle(held: Mapping[Key, Held]) -> Held | None:
    return next((one for one in held.values() if one.busy == 0), None)
