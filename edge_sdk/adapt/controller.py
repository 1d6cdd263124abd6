"""Adaptive control: how long to draft, how far ahead, and whether at all."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from edge_sdk.adapt.acceptance import Acceptance, Confidence
from edge_sdk.adapt.model import GAMMAS, WINDOWS, Costs, Grid
from edge_sdk.adapt.plan import Plan
from edge_sdk.adapt.stopping import stopped_rate, worth_another
from edge_sdk.adapt.times import Times
from edge_sdk.adapt.traffic import EXPECTED, Traffic
from edge_sdk.adapt.way import Way

_GOOD_ENOUGH: Final = 0.99  # share of the best at which a setting is kept, or a smaller one taken
_ROOM: Final = 2  # times as long as the best block without it, where confidence ends a block
_FIRST: Final = 4  # drafted tokens of the very first block
_HORIZON: Final = 1000  # tokens over which the start of a stream is spread
_EAGER: Final = 8  # verdicts after which settings are weighed less often
_EVERY: Final = 4


class Controller:
    """Chooses gamma, window and way for a client, whose texts all teach it.

    Pure: nothing is sent or timed here, seconds are handed in. `plan` is asked before any token
    of a block is drawn, and knows only of verdicts that came in before; so a block's length and
    its `more` depend on settled history and never on the block's own tokens, and the law of the
    text stays the target's. `enough` may end a block after each token, and looks at tokens
    already in the block, which are sent whatever it says. A block that is given up because its
    parent was rejected is stale for the server too, and the same positions are drawn afresh
    under another context.

    `Times` and `Acceptance` hold what was learnt, `Grid` is the model of time that turns it into
    tokens a second for each setting, evaluated anew every few verdicts or when link or text seem
    to have changed; `Way` leaves speculation where it does not pay and comes back.

    Args:
        gammas, windows: settings to choose among.
        ahead: whether blocks may be drafted ahead.
        plain: whether the server may decode alone.

    Raises:
        InvalidRequest: settings that are not ascending or not allowed by the protocol.
    """

    def __init__(
        self,
        *,
        gammas: Sequence[int] = GAMMAS,
        windows: Sequence[int] = WINDOWS,
        ahead: bool = True,
        plain: bool = True,
    ) -> None:
        self._grid = Grid(gammas=gammas, windows=windows if ahead else (1,))
        self._plain_allowed = plain
        self.acceptance = Acceptance()
        self.confidence = Confidence()
        self.times = Times()
        self._traffic = {"": Traffic("")}
        self._method = ""
        self._refusals = 1.0  # against `hybrid`, of the method at its temperature
        self._way = Way()
        self._verdicts = 0
        self._index = (0, 0)
        self._plan = self._best = self._hopeful = Plan(speculate=True)
        self._weigh()

    @property
    def costs(self) -> Costs:
        """What a round of the method is believed to cost."""
        return self.times.costs(self._traffic[self._method])

    # A text

    def method(self, *, temperature: float, offered: Collection[str]) -> str:
        """Name of the lossless method that is expected to be fastest for the next text.

        Args:
            temperature: of the text.
            offered: names that the server offers.
        """
        if temperature == 0:
            return "greedy" if "greedy" in offered else "autoregressive"
        best, fastest, current = "autoregressive", 0.0, self._traffic[self._method]
        for name in EXPECTED:
            if name == "greedy" or name not in offered:
                continue
            traffic = self._traffic.get(name) or Traffic(name, like=current)
            survival = self.acceptance.survival(
                refusals=traffic.refusals(temperature) / self._refusals
            )
            rate = float(self._grid.rates(self.times.costs(traffic), survival).max())
            if rate > fastest / _GOOD_ENOUGH:
                best, fastest = name, rate
        return best

    def begin(self, *, method: str, temperature: float) -> None:
        """A new text with this method; what was learnt of others stays."""
        current = self._traffic[self._method]
        traffic = self._traffic.setdefault(method, Traffic(method, like=current))
        refusals = traffic.refusals(temperature)
        self.acceptance.begin(refusals=refusals / self._refusals)
        self._method, self._refusals = method, refusals
        self._weigh()

    # What was measured

    def exchange(self, *, seconds: float, up_bytes: int, down_bytes: int) -> None:
        """Note any exchange outside of rounds (handshake, opening), server time taken off."""
        self.times.exchange(seconds=seconds, up_bytes=up_bytes, down_bytes=down_bytes)
        self._stale = True

    def drafted(self, *, seconds: float, tokens: int) -> None:
        """Note that drafting so many tokens took so long, discarded ones included."""
        if tokens > 0 and self.times.drafted(seconds=seconds, tokens=tokens):
            self._stale = True

    def round_trip(
        self,
        *,
        seconds: float,
        server_seconds: float,
        up_bytes: int,
        down_bytes: int,
        tokens: int,
        alone: bool,
    ) -> None:
        """Note what a verify took. Not to be told of stale blocks.

        Args:
            seconds: from sending to its verdict.
            server_seconds: of these, what the server reports to have spent on it; 0 if it does
                not say, and then it counts as the link's.
            up_bytes, down_bytes: of request and reply, framing included.
            tokens: drafted tokens of the block.
            alone: nothing else was in flight when it was sent. If something was, the block may
                have queued behind it, and its time says nothing of the link unless it is short.
        """
        if server_seconds > 0:
            self.times.verified(seconds=server_seconds, tokens=tokens)
        self._traffic[self._method].note(up_bytes=up_bytes, down_bytes=down_bytes, tokens=tokens)
        note = self.times.exchange if alone else self.times.queued
        moving = seconds - server_seconds
        if note(seconds=moving, up_bytes=up_bytes, down_bytes=down_bytes):
            self._stale = True

    def verdict(
        self,
        *,
        examined: int,
        accepted: int,
        confidences: Sequence[float] = (),
        settled: bool,
        seconds: float,
    ) -> None:
        """Note what became of a block. Not to be told of stale blocks.

        Args:
            examined: drafted tokens that the target judged.
            accepted: of these, how many it kept.
            confidences: q(x) of the block's tokens; empty if they are not known.
            settled: a token was settled after them, so the next draft begins afresh.
            seconds: what the device spent on the verdict besides drafting.
        """
        changed = self.acceptance.verdict(examined=examined, accepted=accepted, settled=settled)
        if len(confidences) >= examined:
            self.confidence.verdict(confidences, examined=examined, accepted=accepted)
        self.times.spent(seconds)
        self._verdicts += 1
        self._way.verdict(
            examined=examined,
            accepted=accepted,
            settled=settled,
            rising=self.acceptance.rising,
        )
        eager = self._verdicts <= _EAGER or self._way.alone
        self._stale |= changed or eager or self._verdicts % _EVERY == 0

    def streamed(self, *, tokens: int, seconds: float, first_seconds: float) -> None:
        """Note a stretch of plain decoding.

        Args:
            tokens: of it.
            seconds: from the request to the last token.
            first_seconds: from the request to the first.
        """
        self.times.streamed(tokens=tokens, seconds=seconds, first_seconds=first_seconds)
        self.acceptance.streamed(tokens)
        self._way.streamed(seconds=seconds, restart=self._restart(), loss=self._loss())
        self._stale = True

    # What to do

    def plan(self, *, remaining: int) -> Plan:
        """How to go on. To be asked before any token of the next block is drawn.

        Args:
            remaining: tokens that the text may still have.
        """
        if self._verdicts:
            if self._stale:
                self._weigh()
            self._plan = self._decided(max(remaining, 1))
        else:
            # Nothing is known, and a short block measures every part at once.
            self._plan = Plan(speculate=True, gamma=_FIRST, probe=True)
        return self._plan

    def enough(self, confidences: Sequence[float]) -> bool:
        """Whether to end the block that was planned last with the tokens that it has.

        One block at a time: one more token is worth its chance of being reached and accepted,
        and costs its drafting, bytes and row at the rate at which the text goes on anyway.
        Ahead: where a rejection is likely, sending now brings its verdict earlier by the drafting
        of the rest; where there is none, a shorter block may leave a later stage the bottleneck.

        Args:
            confidences: q(x) of the tokens in the block so far.
        """
        if not confidences or not self._telling:
            return False
        plan, costs, mean = self._plan, self._costs, self.acceptance.mean
        reached = math.prod(self.confidence.chance(value, mean) for value in confidences)
        if plan.window == 1:
            return not worth_another(reached, mean, plan.rate, costs)
        length = len(confidences)
        drafted = length * costs.draft
        rest = (plan.gamma - length) * costs.draft
        up = costs.up + costs.up_token * length
        verify = costs.verify + costs.verify_row * length
        longer = costs.overhead + reached * max(0.0, up - drafted, verify - drafted)
        return (1 - reached) * rest > longer

    # Inside

    def _decided(self, remaining: int) -> Plan:
        if not self._plain_allowed:
            return self._roomy(self._best)
        costs, way = self._costs, self._way
        horizon = min(remaining, _HORIZON)
        start = 0.0 if way.alone else costs.round_trip
        plain = horizon / (start + horizon * costs.alone)
        best, hopeful = self._best, self._hopeful
        way.decide(plain=plain, best=best.rate, hopeful=hopeful.rate, ahead=horizon * costs.alone)
        if not way.alone:
            return self._roomy(hopeful if plain > best.rate else best)
        if way.probing:
            return replace(hopeful if hopeful.rate > plain else best, probe=True)
        tokens = way.stretch(
            plain=plain,
            ceiling=float(self._grid.rates(costs, self.acceptance.ceiling()).max()),
            restart=self._restart(),
            loss=self._loss(),
            alone=costs.alone,
        )
        # What little would be left could not pay for a probe.
        tokens = remaining if 2 * remaining < 3 * tokens else tokens
        return Plan(speculate=False, tokens=tokens, rate=plain)

    def _weigh(self) -> None:
        self._costs = self.costs
        self._telling = self.confidence.telling
        self._best = self._chosen(hopeful=False)
        self._hopeful = self._chosen(hopeful=True) if self._plain_allowed else self._best
        self._way.account(rate=self._best.rate, alone=self._costs.alone)
        self._stale = False

    def _chosen(self, *, hopeful: bool) -> Plan:
        rates = self._grid.rates(self._costs, self.acceptance.survival(hopeful=hopeful))
        if self._telling:
            rates[:, 0] *= self._gain(float(rates[:, 0].max()))
        good = rates >= _GOOD_ENOUGH * rates.max()
        # Less ahead and shorter blocks spend less of the battery for the same speed.
        column = int(good.any(axis=0).argmax())
        row = int(rates[:, column].argmax())
        if not hopeful:
            if good[self._index]:
                row, column = self._index
            self._index = (row, column)
        return Plan(
            speculate=True,
            gamma=int(self._grid.gammas[row]),
            window=int(self._grid.windows[column]),
            rate=float(rates[row, column]),
        )

    def _gain(self, rate: float) -> float:
        """How much faster one block at a time is when it ends where the draft is unsure."""
        mean = self.acceptance.mean
        chances = self.confidence.blocks(mean)
        return stopped_rate(chances, mean=mean, rate=rate, costs=self._costs) / rate

    def _roomy(self, plan: Plan) -> Plan:
        """The plan, with longer blocks where `enough` can tell when to end them."""
        if plan.window > 1 or not self._telling:
            return plan
        return replace(plan, gamma=min(_ROOM * plan.gamma, int(self._grid.gammas[-1])))

    def _restart(self) -> float:
        """Seconds that leaving plain decoding and coming back to it costs by itself."""
        costs = self._costs
        return costs.round_trip + costs.up + costs.down + costs.draft

    def _loss(self) -> float:
        """Seconds a token by which speculation looks slower than plain decoding."""
        return max(0.0, 1 / self._best.rate - self._costs.alone)
