"""How long the client waits for the server, and when it tries again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edge_sdk.arguments import integer, number, shown
from edge_sdk.errors import InvalidRequest

MAX_RETRY_AFTER: Final = 60.0  # seconds; a server that asks for more is not waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When a request is sent again. Every request of the protocol may be: the server keeps
    its replies, so nothing happens twice.

    Attributes:
        attempts: tries in all.
        first: seconds before the second try; doubled for each further one.
        longest: most seconds between two tries; a server's Retry-After may ask for more, up
            to a minute.
    """

    attempts: int = 5
    first: float = 0.25
    longest: float = 8.0

    def __post_init__(self) -> None:
        for name in ("first", "longest"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        if integer("attempts", self.attempts) < 1:
            raise InvalidRequest(
                f"attempts is {shown(self.attempts)}; at least 1 is needed", field="attempts"
            )
        if not (0 <= self.first <= self.longest):
            raise InvalidRequest("a retry needs 0 <= first <= longest seconds")

    def delay(self, failures: int) -> float:
        """Seconds to wait after that many failures in a row."""
        return float(min(self.longest, self.first * 2 ** (failures - 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds.

    Attributes:
        connect: until a connection stands.
        reply: until the reply to a round is there in full; for a stream, its longest silence.
        setup: until any other reply is there in full: the card, the byte table, a registered
            pair, and opening and closing a session.
    """

    connect: float = 5.0
    reply: float = 120.0
    setup: float = 30.0

    def __post_init__(self) -> None:
        for name in ("connect", "reply", "setup"):
            value = number(name, getattr(self, name))
            if value <= 0:
                raise InvalidRequest(
                    f"{name} is {shown(value)}; it must be more than 0 seconds", field=name
                )
            object.__setattr__(self, name, value)
