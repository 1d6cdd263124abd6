"""What one key may use of the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from edge_sdk.errors import RateLimited

_BURST_SECONDS: Final = 2.0  # of requests that may come at once, or so many:
_LEAST_BURST: Final = 8.0  # one request for OpenAI's clients may be eight texts
_LONGEST_WAIT: Final = 3600.0
_BUSY_WAIT: Final = 1.0  # seconds a client waits when its requests in flight are too many
_SESSIONS_WAIT: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """Limits of each key; 0 is no limit.

    Attributes:
        sessions: sessions open at once.
        tokens_in_flight: tokens of prefills and verifies that wait or are under way.
        requests_per_second: openings, further turns and verifies, on average over two seconds or
            eight of them.
    """

    sessions: int = 0
    tokens_in_flight: int = 0
    requests_per_second: float = 0.0


@dataclass(slots=True)
class _Bucket:
    filled: float
    at: float


class Quotas:
    """Counts what every owner uses. Event loop only.

    Raises (every method): RateLimited, with the time after which trying again may help.
    """

    def __init__(self, limits: KeyLimits | None = None) -> None:
        self.limits = limits or KeyLimits()
        self._tokens: Counter[str] = Counter()
        self._buckets: dict[str, _Bucket] = {}

    def request(self, owner: str, now: float) -> None:
        """Count one request.

        Args:
            now: seconds on a steady clock.

        Raises:
            RateLimited: too many a second.
        """
        rate = self.limits.requests_per_second
        if not rate:
            return
        most = max(_LEAST_BURST, rate * _BURST_SECONDS)
        bucket = self._buckets.setdefault(owner, _Bucket(most, now))
        bucket.filled = min(most, bucket.filled + (now - bucket.at) * rate)
        bucket.at = now
        if bucket.filled < 1:
            raise RateLimited(
                f"more than {rate:g} requests a second came with this key",
                retry_after=min(_LONGEST_WAIT, (1 - bucket.filled) / rate),
            )
        bucket.filled -= 1

    def session(self, opened: int) -> None:
        """Check that a key with so many sessions may open another.

        Raises:
            RateLimited: it has all that it may have.
        """
        most = self.limits.sessions
        if most and opened >= most:
            raise RateLimited(
                f"this key has {opened} sessions open, of at most {most}; close one, or try again "
                f"when one has been idle for a while",
                retry_after=_SESSIONS_WAIT,
            )

    @contextmanager
    def in_flight(self, owner: str, tokens: int) -> Iterator[None]:
        """Count tokens while they wait or are computed. A key with nothing in flight may always
        send one request.

        Raises:
            RateLimited: too many are in flight.
        """
        before, most = self._tokens[owner], self.limits.tokens_in_flight
        if most and before and before + tokens > most:
            raise RateLimited(
                f"this key has {before} tokens in flight and {tokens} more would be over its "
                f"{most}; wait for answers first",
                retry_after=_BUSY_WAIT,
            )
        self._tokens[owner] += tokens
        try:
            yield
        finally:
            self._tokens[owner] -= tokens
            if not self._tokens[owner]:
                del self._tokens[owner]
