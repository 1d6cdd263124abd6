"""What became of one round, told while the text goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from edge_sdk.adapt import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One block, or one stretch that the server decoded alone.

    Times are seconds on the clock of `time.perf_counter`.

    Attributes:
        sequence: number of its verify; None for a stretch, and for a block that was given up
            before it was sent, since a verdict that came in meanwhile made it stale.
        plan: what the round was to be; of a stretch `plan.speculate` is False. None where a
            rejected position had to be judged again in a new session.
        gamma: tokens drafted; 0 of a stretch, and unknown (0) of a block that was given up.
        accepted: of these, how many the target kept.
        tokens: tokens that the text gained, the settled one included.
        settled: who settled the token after the accepted ones; None if nobody did.
        stale: the block was dropped by the server, or given up here.
        asks: further trips to settle the rejected position.
        up_bytes, down_bytes: bodies, asks included.
        draft_begin, draft_end: when it was drafted; None of a stretch.
        sent: when it was sent; None if it was given up.
        received: its verdict, or the last reply to an ask, or the last token of a stretch.
        server_seconds: what the server reports to have spent; 0 of a stretch, whose reply
            begins before the server knows.
    """

    sequence: int | None
    plan: Plan | None
    gamma: int = 0
    accepted: int = 0
    tokens: int = 0
    settled: Literal["device", "server"] | None = None
    stale: bool = False
    asks: int = 0
    up_bytes: int = 0
    down_bytes: int = 0
    draft_begin: float | None = None
    draft_end: float | None = None
    sent: float | None = None
    received: float | None = None
    server_seconds: float = 0.0

    @property
    def server_begin(self) -> float | None:
        """When the server began, if both ways take the same time."""
        if self.sent is None or self.received is None:
            return None
        return server_begin(self.sent, self.received, self.server_seconds)


OnRound = Callable[[Round], None]


def server_begin(sent: float, received: float, server_seconds: float) -> float:
    """Where the server's time lies in a trip whose two ways are equally long."""
    return sent + max(0.0, received - sent - server_seconds) / 2
