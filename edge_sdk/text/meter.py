"""Where the time of a text goes, and what is told of its rounds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TypeVar

from edge_sdk.adapt import Plan
from edge_sdk.stats import Stats
from edge_sdk.text.blocks import Block, Outcome
from edge_sdk.text.flight import Answered
from edge_sdk.text.round import OnRound, Round, server_begin
from edge_sdk.text.tokens import Origin
from edge_sdk.transport import Exchange

T = TypeVar("T")


class Meter:
    """Divides the time of a text into parts that do not overlap: a text drafts, or waits for
    the server, or does neither. What the server does while a block is drafted costs no time
    and counts in `Stats.server_seconds` only.

    Args:
        on_round: told every round as it ends; what it raises ends the text.
    """

    def __init__(self, stats: Stats, on_round: OnRound | None = None) -> None:
        self._stats = stats
        self._on_round = on_round
        self._start = time.perf_counter()
        self._drafted: dict[int, tuple[Plan, float, float]] = {}
        self._current: Round | None = None

    def begin(self) -> None:
        """The session is open and the draft has read the prompt."""
        self._start = time.perf_counter()

    def mark(self) -> None:
        """The text is as far as now."""
        self._until(time.perf_counter())

    def drafted(self, begin: float, block: Block | None = None, plan: Plan | None = None) -> float:
        """The draft was busy from `begin` until now.

        Args:
            block: what it made; None if it was given up.
            plan: what it was to be; None of tokens that are kept without asking.

        Returns:
            seconds it took.
        """
        end = time.perf_counter()
        self._stats.draft_seconds += end - begin
        self._until(end)
        if block is not None and plan is not None:
            self._drafted[block.verify.sequence] = (plan, begin, end)
        elif plan is not None:
            self._tell(
                Round(sequence=None, plan=plan, stale=True, draft_begin=begin, draft_end=end)
            )
        return end - begin

    def verdict(self, begin: float, answered: Answered) -> None:
        """The text waited for a verdict from `begin` until now."""
        received = answered.sent + answered.seconds
        self._waited(begin, answered.sent, received, answered.exchange.server_seconds)

    def asked(self, begin: float, exchange: Exchange) -> None:
        """The text waited for the reply to an ask, sent at `begin`, until now."""
        end = time.perf_counter()
        self._waited(begin, begin, end, exchange.server_seconds)
        self._further(end, exchange, asks=1)

    def judged_again(self, begin: float, answered: Answered) -> None:
        """An ask, sent at `begin`, found the session lost, and the rest of its block was judged
        in a new one."""
        self.verdict(begin, answered)
        self._further(answered.sent + answered.seconds, answered.exchange, asks=0)

    def judged(self, answered: Answered, outcome: Outcome) -> None:
        """A verdict was taken; the round may still have to ask."""
        block, exchange = answered.block, answered.exchange
        plan, draft_begin, draft_end = self._drafted.pop(block.verify.sequence, (None, None, None))
        here = answered.verdict.rejection is not None
        self._current = Round(
            sequence=block.verify.sequence,
            plan=plan,
            gamma=len(block.drafted),
            accepted=outcome.accepted,
            tokens=len(outcome.tokens),
            settled=("device" if here else "server") if _settles(outcome) else None,
            stale=outcome.stale,
            up_bytes=exchange.up_bytes,
            down_bytes=exchange.down_bytes,
            draft_begin=draft_begin,
            draft_end=draft_end,
            sent=answered.sent,
            received=answered.sent + answered.seconds,
            server_seconds=exchange.server_seconds,
        )

    def settled(self, outcome: Outcome) -> None:
        """The round is over.

        Args:
            outcome: what ended it: of its verdict, or of the last ask.
        """
        ended, self._current = self._current, None
        if ended is None:
            return
        if ended.settled is None and _settles(outcome):
            more = len(outcome.tokens)
            ended = replace(ended, tokens=ended.tokens + more, settled="device")
        self._tell(ended)

    async def stretch(
        self, stream: AsyncGenerator[T, None], plan: Plan, *, round_trip: float
    ) -> AsyncGenerator[T, None]:
        """Tokens of the server alone. Of the wait for the first one, up to a round trip is the
        link's; all other waiting is the server's, whose tokens follow one another.

        Args:
            stream: what gives them; closed with this.
        """
        stats = self._stats
        sent = received = time.perf_counter()
        up, down, tokens = stats.up_bytes, stats.down_bytes, 0
        try:
            async with contextlib.aclosing(stream):
                while True:
                    begin = time.perf_counter()
                    try:
                        token = await anext(stream)
                    except StopAsyncIteration:
                        break
                    received = time.perf_counter()
                    link = 0.0 if tokens else min(round_trip, received - begin)
                    stats.link_seconds += link
                    stats.verify_seconds += received - begin - link
                    self._until(received)
                    tokens += 1
                    yield token
        finally:
            self._tell(
                Round(
                    sequence=None,
                    plan=plan,
                    tokens=tokens,
                    up_bytes=stats.up_bytes - up,
                    down_bytes=stats.down_bytes - down,
                    sent=sent,
                    received=received,
                )
            )

    def _waited(self, begin: float, sent: float, received: float, server: float) -> None:
        """Divide a wait: the server's share is what overlaps with the time it reports, which
        lies in the middle of the trip. The rest is the link's: the way there and back, tries
        that failed, sessions that were opened again."""
        end = time.perf_counter()
        first = server_begin(sent, received, server)
        verify = max(0.0, min(first + server, end) - max(first, begin))
        self._stats.verify_seconds += verify
        self._stats.link_seconds += end - begin - verify
        self._until(end)

    def _further(self, received: float, exchange: Exchange, *, asks: int) -> None:
        """A further trip of the round."""
        current = self._current
        if current is not None:
            self._current = replace(
                current,
                asks=current.asks + asks,
                received=received,
                up_bytes=current.up_bytes + exchange.up_bytes,
                down_bytes=current.down_bytes + exchange.down_bytes,
                server_seconds=current.server_seconds + exchange.server_seconds,
            )

    def _until(self, now: float) -> None:
        self._stats.seconds = now - self._start

    def _tell(self, round_: Round) -> None:
        if self._on_round is not None:
            self._on_round(round_)


def _settles(outcome: Outcome) -> bool:
    return bool(outcome.tokens) and outcome.tokens[-1].origin == Origin.SETTLED
