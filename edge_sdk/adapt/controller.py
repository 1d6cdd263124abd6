"""Adaptive control: how long to draft, how far ahead, and whether at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from edge_sdk.adapt.acceptance import Acceptance, Confidence
from edge_sdk.adapt.budget import Budget
from edge_sdk.adapt.estimates import Line, Mean
from edge_sdk.adapt.model import GAMMAS, WINDOWS, Costs, Grid
from edge_sdk.adapt.plan import Plan

_MARGIN: Final = 1.02  # how much faster the other way must look before the way is changed
_GOOD_ENOUGH: Final = 0.99  # share of the best at which a setting is kept, or a smaller one taken
_LONGEST_PROBE: Final = 32  # examined tokens
_LOAN: Final = 1.5  # times the text to come, lent to the first trials
_LEAST_ALONE: Final = 32  # tokens between two probes
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

    Speculation is left when plain decoding looks faster by a margin even if acceptance were as
    good as it may well be, and taken up again when a probe says so. What probes cost, against
    plain decoding, stays below 1.5 % of its time.

    Args:
        gammas, windows: settings to choose among.
        ahead: whether blocks may be drafted ahead.
        plain: whether the server may decode alone.
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
        self._draft = Mean(0.02, memory=200)
        self._verify = Line((0.04, 0.0004), (1.0, 0.002), floor=2e-4)
        self._link = Line((0.05, 8e-7, 8e-7), (1.0, 1e-4, 1e-4), floor=3e-4)
        self._up = Line((280.0, 8.0), (200.0, 8.0), floor=2.0)
        self._down = Mean(170.0)
        self._overhead = Mean(0.001)
        self._step = Mean(0.04, memory=4)  # seconds between two tokens of the server alone
        self._step_verify = 0.0  # what a verify took when that was measured
        self._streamed_bytes = 15.0
        self._is_alone = False
        self._probe_left = 0  # examined tokens until a probe has told enough
        self._budget = Budget()
        self._tried = 0  # tokens of speculation that are not in the budget yet
        self._verdicts = 0
        self._stale = True
        self._index = (0, 0)
        self._best = Plan(speculate=True)
        self._hopeful = self._best
        self._ceiling = 0.0
        self._costs = self._measured()

    # What was measured

    def exchange(self, *, seconds: float, up_bytes: int, down_bytes: int) -> None:
        """Note any exchange outside of rounds (handshake, opening), server time taken off."""
        self._link.note((1.0, up_bytes, down_bytes), seconds)
        self._stale = True

    def drafted(self, *, seconds: float, tokens: int) -> None:
        """Note that drafting so many tokens took so long, discarded ones included."""
        if tokens > 0:
            first = not self._draft.known
            self._draft.note(seconds / tokens, tokens)
            self._stale |= first

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
        """Note what a verify took.

        Args:
            seconds: from sending to its verdict.
            server_seconds: of these, what the server reports to have spent on it.
            up_bytes, down_bytes: of request and reply, framing included.
            tokens: drafted tokens of the block.
            alone: nothing else was in flight when it was sent. If something was, the block may
                have queued behind it, and its time says nothing of the link unless it is short.
        """
        self._verify.note((1.0, float(tokens)), server_seconds)
        self._up.note((1.0, float(tokens)), up_bytes)
        self._down.note(down_bytes)
        x = (1.0, float(up_bytes), float(down_bytes))
        moving = max(0.0, seconds - server_seconds)
        if (alone or moving < self._link.at(*x)) and self._link.note(x, moving):
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
        """Note what became of a block.

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
        self._overhead.note(seconds)
        self._verdicts += 1
        self._tried += accepted + settled
        self._probe_left = max(0, self._probe_left - max(examined, 1))
        eager = self._verdicts <= _EAGER or self._is_alone
        self._stale |= changed or eager or self._verdicts % _EVERY == 0

    def streamed(self, *, tokens: int, seconds: float, first_seconds: float) -> None:
        """Note a stretch of plain decoding.

        Args:
            tokens: of it.
            seconds: from the request to the last token.
            first_seconds: from the request to the first.
        """
        if tokens > 1:
            self._step.note((seconds - first_seconds) / (tokens - 1))
            self._step_verify = self._verify.values[0] if self._verdicts else 0.0
        self._budget.passed(seconds)
        self.acceptance.streamed(tokens)
        self._probe_left = self._probe_tokens()
        self._budget.lose(self._restart())
        self._stale = True

    # What to do

    def plan(self, *, remaining: int) -> Plan:
        """How to go on. To be asked before any token of the next block is drawn.

        Args:
            remaining: tokens that the text may still have.
        """
        if not self._verdicts:
            return Plan(speculate=True, gamma=_FIRST, probe=True)  # it measures every part at once
        if self._stale:
            self._weigh()
        if not self._plain_allowed:
            return self._best
        costs = self._costs
        horizon = max(1, min(remaining, _HORIZON))
        start = 0.0 if self._is_alone else costs.round_trip
        plain = horizon / (start + horizon * costs.alone)
        self._budget.lend(_LOAN * min(remaining, _HORIZON) * costs.alone)
        hope = self._hopeful.rate > plain * _MARGIN
        if self._is_alone and hope and not self._probe_left and not self._budget.empty:
            self._is_alone = False
        elif not self._is_alone and plain > self._best.rate * _MARGIN:
            self._is_alone = self._budget.empty or not hope
            self._probe_left = 0
        if not self._is_alone:
            better = plain > self._best.rate
            return self._hopeful if better else self._best
        if self._probe_left:
            return replace(self._hopeful if hope else self._best, probe=True)
        hopeless = self._ceiling < plain * _MARGIN
        due = self._budget.wait(self._probe_cost(), hopeless=hopeless)
        tokens = max(_LEAST_ALONE, math.ceil(due / costs.alone))
        return Plan(speculate=False, tokens=min(tokens, max(remaining, 1)), rate=plain)

    def enough(self, confidences: Sequence[float]) -> bool:
        """Whether to end the block with the tokens that it has.

        One block at a time: one more token is worth its chance of being reached and accepted,
        and costs its drafting, bytes and row at the rate at which the text goes on anyway.

        Args:
            confidences: q(x) of the tokens in the block so far.
        """
        if not confidences or not self.confidence.telling:
            return False
        mean = self.acceptance.mean
        reached = 1.0
        for confidence in confidences:
            reached *= self.confidence.chance(confidence, mean)
        costs = self._costs
        if self._best.window > 1:
            drafted = len(confidences) * costs.draft
            more = (self._best.gamma - len(confidences)) * costs.draft
            up = costs.up + costs.up_token * len(confidences)
            verify = costs.verify + costs.verify_row * len(confidences)
            stage = costs.overhead + max(0.0, up - drafted, verify - drafted)
            return (1 - reached) * more > stage
        cost = costs.draft + costs.up_token + costs.verify_row
        return reached * mean < self._best.rate * cost

    # Inside

    def _weigh(self) -> None:
        costs = self._costs = self._measured()
        self._best = self._chosen(costs, hopeful=False)
        self._hopeful = self._chosen(costs, hopeful=True)
        self._ceiling = float(self._grid.rates(costs, self.acceptance.ceiling()).max())
        if self._tried:
            took = self._tried / self._best.rate
            self._budget.passed(took)
            self._budget.lose(took - self._tried * costs.alone)
            self._tried = 0
        self._stale = False

    def _chosen(self, costs: Costs, *, hopeful: bool) -> Plan:
        rates = self._grid.rates(costs, self.acceptance.survival(hopeful=hopeful))
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

    def _measured(self) -> Costs:
        round_trip, up_byte, down_byte = self._link.values
        request, request_token = self._up.values
        verify, verify_row = self._verify.values
        return Costs(
            draft=self._draft.value,
            verify=verify,
            verify_row=verify_row,
            round_trip=round_trip,
            up=request * up_byte,
            up_token=request_token * up_byte,
            down=self._down.value * down_byte,
            overhead=self._overhead.value,
            alone=self._alone_step(verify, down_byte),
        )

    def _alone_step(self, verify: float, down_byte: float) -> float:
        """Seconds a token of the server alone: as measured, and since then as the passes of the
        target go; unmeasured, a pass over one row or the bytes of a token."""
        if not self._step.known:
            return max(verify, self._streamed_bytes * down_byte, 1e-6)
        if not self._step_verify and self._verdicts:
            self._step_verify = verify
        drift = verify / self._step_verify if self._step_verify > 0 else 1.0
        return max(self._step.value * drift, 1e-6)

    def _restart(self) -> float:
        """Seconds that leaving plain decoding and coming back to it costs by itself."""
        costs = self._costs
        return costs.round_trip + costs.up + costs.down + costs.draft

    def _loss(self) -> float:
        """Seconds a token by which speculation looks slower than plain decoding."""
        return max(0.0, 1 / self._best.rate - self._costs.alone)

    def _probe_tokens(self) -> int:
        """How long a probe is: as costly as getting there, within bounds."""
        loss = self._loss()
        most = _LONGEST_PROBE
        return most if loss * most <= self._restart() else max(2, int(self._restart() / loss))

    def _probe_cost(self) -> float:
        return self._restart() + self._probe_tokens() * self._loss()
