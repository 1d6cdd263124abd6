"""Device, link and server in virtual time: what a policy of drafting would take.

A discrete-event simulation. Every stage (draft, uplink, server, downlink) works on one thing at a
time, first come first served. Which drafted tokens would be accepted is drawn beforehand for every
position of the text, so that two policies meet the same luck.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from edge_sdk.adapt.plan import Plan
from edge_sdk.text.control import Control


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What things take. Seconds, bytes, bits a second.

    Attributes:
        round_trip: of an empty exchange.
        up_rate, down_rate: of the link either way.
        draft: of one drafted token.
        verify: of a pass of the target over one row.
        verify_row: of each further row, as a share of `verify`.
        overhead: of the device for a verdict.
        request_bytes, reply_bytes: of a round without drafts, framing included.
        token_bytes: of each drafted token.
        streamed_bytes: of each token of the server alone.
        jitter: mean of an exponential delay added to each passage, as a share of the round trip.
    """

    round_trip: float
    up_rate: float
    down_rate: float
    draft: float
    verify: float
    verify_row: float = 0.0125
    overhead: float = 0.0015
    request_bytes: int = 280
    reply_bytes: int = 170
    token_bytes: int = 8
    streamed_bytes: int = 15
    jitter: float = 0.0

    def server_seconds(self, rows: int) -> float:
        return self.verify * (1 + self.verify_row * (rows - 1))


@dataclass(frozen=True, slots=True)
class Text:
    """Attributes:
    accepted: by position, whether a draft of that position would be accepted.
    confidence: by position, what the draft believes of it.
    """

    accepted: Sequence[bool]
    confidence: Sequence[float]


@dataclass(frozen=True, slots=True)
class Fixed:
    """One plan for the whole text; plain decoding too, which that of `edge_sdk.text.control`
    cannot be."""

    setting: Plan

    def plan(self, *, remaining: int) -> Plan:
        return self.setting

    def enough(self, confidences: Sequence[float]) -> bool:
        return False

    def drafted(self, **measured: object) -> None:
        return

    def round_trip(self, **measured: object) -> None:
        return

    def verdict(self, **measured: object) -> None:
        return

    def streamed(self, **measured: object) -> None:
        return


@dataclass(slots=True)
class Run:
    """What a text took.

    Attributes:
        seconds: of virtual time.
        tokens: of the text.
        rounds: blocks that the server verified.
        drafted: tokens drafted, the discarded ones included.
        streamed: tokens of the server alone.
        peak: most blocks in flight at once, the one being drafted included.
        plans: how many blocks or streams each plan (speculate, gamma, window) gave.
    """

    seconds: float = 0.0
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    streamed: int = 0
    peak: int = 0
    plans: dict[tuple[bool, int, int], int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


@dataclass(slots=True)
class _Block:
    arrival: float
    sent: float
    length: int
    accepted: int
    more: bool
    server_seconds: float
    up_bytes: int
    down_bytes: int
    alone: bool
    confidences: Sequence[float]

    @property
    def whole(self) -> bool:
        return self.accepted == self.length


class Simulation:
    """One text.

    Args:
        worlds: the world from a position on, by position, the first being 0.
        text: what would be accepted.
        pilot: who decides.
        length: tokens of the whole text.
        seed: of the jitter.
    """

    def __init__(
        self,
        worlds: Sequence[tuple[int, World]] | World,
        text: Text,
        pilot: Control,
        *,
        length: int,
        seed: int = 0,
    ) -> None:
        self._worlds = [(0, worlds)] if isinstance(worlds, World) else list(worlds)
        self._world = self._worlds.pop(0)[1]
        self._text = text
        self._length = length
        self._pilot = pilot
        self._rng = np.random.default_rng(seed)
        self._observed = not isinstance(pilot, Fixed)
        self._now = self._uplink = self._server = self._downlink = 0.0
        self._done = self._ahead = 0
        self._flight: deque[_Block] = deque()
        self.run = Run()

    def go(self, tokens: int | None = None) -> Run:
        """Go on until the text has so many tokens, or all."""
        run, flight = self.run, self._flight
        tokens = self._length if tokens is None else tokens
        while self._done < tokens:
            while flight and flight[0].arrival <= self._now:
                self._receive()
            if self._done >= tokens:
                break
            if self._worlds and self._done >= self._worlds[0][0]:
                self._world = self._worlds.pop(0)[1]
            room = self._length - self._done - self._ahead
            if flight and (not flight[-1].more or not room):
                self._await()
                continue
            plan = self._pilot.plan(remaining=room)
            if flight and (not plan.speculate or len(flight) >= plan.window):
                self._await()
                continue
            if self._observed:
                key = (plan.speculate, plan.gamma, plan.window)
                run.plans[key] = run.plans.get(key, 0) + 1
            if not plan.speculate:
                self._stream(min(plan.tokens, room), last=plan.tokens >= room)
            else:
                self._speculate(min(plan.gamma, room), plan.more)
        run.seconds, run.tokens = self._now, self._done
        return run

    def _await(self) -> None:
        self._now = max(self._now, self._flight[0].arrival)

    def _speculate(self, gamma: int, more: bool) -> None:
        world, flight, run = self._world, self._flight, self.run
        base = self._done + self._ahead
        run.peak = max(run.peak, len(flight) + 1)
        confidences = self._text.confidence[base : base + gamma] if self._observed else ()
        length = 0
        busy = 0.0
        end = self._now + gamma * world.draft
        if not self._observed and (not flight or flight[0].arrival > end):
            self._now, length = end, gamma
            run.drafted += gamma
        while length < gamma:
            self._now += world.draft
            busy += world.draft
            length += 1
            run.drafted += 1
            while flight and flight[0].arrival <= self._now:
                if not self._receive():
                    self._pilot.drafted(seconds=busy, tokens=length)
                    return  # what was drafted continued a rejected block
            if self._observed and self._pilot.enough(confidences[:length]):
                break
        if self._observed:
            self._pilot.drafted(seconds=busy, tokens=length)
        self._send(base, length, more, confidences[:length])

    def _send(self, base: int, length: int, more: bool, confidences: Sequence[float]) -> None:
        world, flight, accepted = self._world, self._flight, 0
        live = not flight or flight[-1].whole
        if live:
            text = self._text.accepted
            while accepted < length and text[base + accepted]:
                accepted += 1
        up_bytes = world.request_bytes + world.token_bytes * length
        self._uplink = max(self._now, self._uplink) + 8 * up_bytes / world.up_rate
        there = self._uplink + self._passage()
        spent = world.server_seconds(length + 1) if live else 0.0
        self._server = max(there, self._server) + spent
        self._downlink = max(self._server, self._downlink) + 8 * world.reply_bytes / world.down_rate
        flight.append(
            _Block(
                arrival=self._downlink + self._passage(),
                sent=self._now,
                length=length,
                # A stale block never counts: the rejection before it comes first.
                accepted=accepted if live else -1,
                more=more,
                server_seconds=spent,
                up_bytes=up_bytes,
                down_bytes=world.reply_bytes,
                alone=not flight,
                confidences=confidences,
            )
        )
        self._ahead += length

    def _receive(self) -> bool:
        """Take the oldest verdict; False if it rejects."""
        block = self._flight.popleft()
        self._now = max(self._now, block.arrival) + self._world.overhead
        self.run.rounds += 1
        self._ahead -= block.length
        settled = not block.whole or not block.more
        self._done += block.accepted + settled
        if not block.whole:
            self._flight.clear()
            self._ahead = 0
        if self._observed:
            self._pilot.round_trip(
                seconds=block.arrival - block.sent,
                server_seconds=block.server_seconds,
                up_bytes=block.up_bytes,
                down_bytes=block.down_bytes,
                tokens=block.length,
                alone=block.alone,
            )
            self._pilot.verdict(
                examined=block.accepted + (not block.whole),
                accepted=block.accepted,
                confidences=block.confidences,
                settled=settled,
                seconds=self._world.overhead,
            )
        return block.whole

    def _stream(self, tokens: int, *, last: bool) -> None:
        world, begin = self._world, self._now
        step = max(world.server_seconds(1), 8 * world.streamed_bytes / world.down_rate)
        self._uplink = max(begin, self._uplink) + 8 * world.request_bytes / world.up_rate
        header = 8 * world.reply_bytes / world.down_rate
        first = self._uplink + self._passage() + world.server_seconds(1) + header + self._passage()
        self._now = first + (tokens - 1) * step
        if self._observed:
            self._pilot.streamed(
                tokens=tokens, seconds=self._now - begin, first_seconds=first - begin
            )
        if not last:
            # The draft has read along; its last row is what the next block needs.
            self._now += world.draft
        self._server = self._downlink = self._now
        self._done += tokens
        self.run.streamed += tokens

    def _passage(self) -> float:
        half = self._world.round_trip / 2
        if self._world.jitter:
            half += float(self._rng.exponential(self._world.jitter * self._world.round_trip))
        return half
