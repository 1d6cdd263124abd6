"""Which gamma and method the measured parts speak for.

A round of gamma drafts takes gamma t_draft + t_pass(gamma + 1) + RTT seconds and settles E[N]
tokens (`agreement.tokens_a_round`); the server alone takes t_pass(1) a token and streams. So

    speedup(gamma) = E[N] t_pass(1) / (gamma t_draft + t_pass(gamma + 1) + RTT)

for one block at a time. Blocks that are sent before the last answer came hide part of the RTT,
which this leaves out: the real figure is that or better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from export.check.agreement import tokens_a_round

MOST_GAMMA: Final = 16
RTTS_MS: Final = (0.0, 20.0, 50.0, 100.0, 200.0)
# `coupled` sends the fewest bits and its text does not depend on the draft: taken where it costs
# less than this share of the speed.
_NEARLY: Final = 0.97


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of the parts of a round.

    Attributes:
        draft_s: a drafted token.
        pass_s: a pass of the target by the number of its rows, 1 among them; between and beyond
            these numbers it is a line.
    """

    draft_s: float
    pass_s: Mapping[int, float]

    def pass_of(self, rows: int) -> float:
        """Seconds of a pass over `rows` tokens."""
        known = sorted(self.pass_s)
        if rows <= known[-1] or len(known) == 1:
            return float(np.interp(rows, known, [self.pass_s[n] for n in known]))
        low, high = known[-2], known[-1]
        slope = max(0.0, (self.pass_s[high] - self.pass_s[low]) / (high - low))
        return self.pass_s[high] + slope * (rows - high)


@dataclass(frozen=True, slots=True)
class Choice:
    """The best setting at one round trip time.

    Attributes:
        rtt_ms: round trip time of the link.
        method: `hybrid` or `coupled`; `autoregressive` where drafting does not pay.
        gamma: drafts a round; 0 with `autoregressive`.
        speedup: tokens a second over those of the server alone.
    """

    rtt_ms: float
    method: str
    gamma: int
    speedup: float


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to take.

    Attributes:
        draft_ms: a drafted token.
        target_ms: a pass of the target over one token.
        choices: by round trip time, ascending.
        pays_up_to_ms: longest round trip at which a gamma is faster than the server alone;
            0 where none is.
        curves: speedup by gamma (1, 2, ...) of `hybrid` for each round trip time of `choices`.
    """

    draft_ms: float
    target_ms: float
    choices: tuple[Choice, ...]
    pays_up_to_ms: float
    curves: tuple[tuple[float, ...], ...]


def recommend(
    acceptance: Mapping[str, float], costs: Costs, *, rtts_ms: Sequence[float] = RTTS_MS
) -> Recommendation:
    """Choose method and gamma at each round trip time.

    Args:
        acceptance: chance that a drafted token is accepted, by method; `hybrid` among them.
        costs: seconds of the parts.
        rtts_ms: round trip times to choose for.
    """
    alone = costs.pass_of(1)
    gammas = range(1, MOST_GAMMA + 1)

    def speedup(method: str, gamma: int, rtt: float) -> float:
        seconds = gamma * costs.draft_s + costs.pass_of(gamma + 1) + rtt
        return tokens_a_round(acceptance[method], gamma) * alone / seconds

    def choice(rtt_ms: float) -> Choice:
        best = {
            method: max((speedup(method, gamma, rtt_ms / 1e3), -gamma, gamma) for gamma in gammas)
            for method in ("hybrid", "coupled")
            if method in acceptance
        }
        method = "hybrid"
        if "coupled" in best and best["coupled"][0] >= _NEARLY * best["hybrid"][0]:
            method = "coupled"
        gain, _, gamma = best[method]
        if gain <= 1.0:
            return Choice(rtt_ms, "autoregressive", 0, 1.0)
        return Choice(rtt_ms, method, gamma, gain)

    pays = max(
        tokens_a_round(acceptance["hybrid"], gamma) * alone
        - gamma * costs.draft_s
        - costs.pass_of(gamma + 1)
        for gamma in gammas
    )
    return Recommendation(
        draft_ms=1e3 * costs.draft_s,
        target_ms=1e3 * alone,
        choices=tuple(choice(rtt) for rtt in sorted(rtts_ms)),
        pays_up_to_ms=1e3 * max(0.0, pays),
        curves=tuple(
            tuple(speedup("hybrid", gamma, rtt / 1e3) for gamma in gammas)
            for rtt in sorted(rtts_ms)
        ),
    )
