"""The law of `mentored`: clip(q, p/b, p/a) within a divergence of p."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

# ln of the largest b. An id that only p has keeps at least p/b, so where p is below about
# d / 690 there the divergence stays under d: no float64 is small enough.
_LOG_LARGEST: Final = 690.0


@dataclass(frozen=True, slots=True)
class MentoredLaw:
    """final = clip(q, p/b, p/a), sum 1, KL(p || final) = min(D, KL(p || q)).

    Attributes:
        a: at most 1; 0 bounds nothing from above.
        b: at least 1; infinity bounds nothing from below.
        kept: where p is 0 the upper bound p/a is 0 for every a > 0, and any value up to q in
            the limit a = 0; final is `kept` * q there.
        divergence: KL(p || final) in nats.
    """

    a: float
    b: float
    kept: float
    divergence: float

    def accept(self, p: float, q: float) -> float:
        """Probability of keeping a token drawn from q."""
        if p <= 0:
            return self.kept
        return 1.0 if self.a <= 0 else min(1.0, p / (self.a * q))

    def residual(self, p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
        """max(p/b - q, 0), which the replacement is drawn from (not normalised)."""
        raised: NDArray[np.float64] = np.maximum(p / self.b - q, 0.0)
        return raised

    def final(self, p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
        """The law itself [n]."""
        upper = np.divide(p, self.a, out=np.full_like(p, np.inf), where=self.a > 0)
        upper[p <= 0] = self.kept * q[p <= 0]
        law: NDArray[np.float64] = np.minimum(np.maximum(q, p / self.b), upper)
        return law


class _Sorted:
    """Prefix sums of p and q by ascending ratio p/q, which make every evaluation O(log n).

    Ids with q = 0 < p have an infinite ratio and are only a mass; ids with p = 0 < q have
    ratio 0 and are only a mass too.
    """

    def __init__(self, p: NDArray[np.float64], q: NDArray[np.float64]) -> None:
        both = (p > 0) & (q > 0)
        self.p_alone = float(p[q <= 0].sum())
        self.q_alone = float(q[p <= 0].sum())
        p, q = p[both], q[both]
        order = np.argsort(p / q, kind="stable")
        p, q = p[order], q[order]
        self.ratio = p / q
        self.p_sum = np.concatenate([[0.0], np.cumsum(p)])
        self.q_sum = np.concatenate([[0.0], np.cumsum(q)])
        self.gain = np.concatenate([[0.0], np.cumsum(p * np.log(self.ratio))])

    def raised(self, b: float) -> float:
        """Sum of max(p/b - q, 0)."""
        n = int(np.searchsorted(self.ratio, b))
        p_from = float(self.p_sum[-1] - self.p_sum[n]) + self.p_alone
        return max(0.0, p_from / b - float(self.q_sum[-1] - self.q_sum[n]))

    def lowered(self, mass: float) -> tuple[float, float]:
        """a and `kept` that take `mass` off q: first off the ids without p, then, with all of
        those gone, sum of max(q - p/a, 0) = mass - q_alone."""
        if mass <= self.q_alone:
            return 0.0, 1 - mass / self.q_alone if self.q_alone > 0 else 1.0
        rest = mass - self.q_alone
        # What an a equal to each ratio would take; a lies below the first that takes enough.
        taken = self.q_sum[:-1] - self.p_sum[:-1] / self.ratio
        n = int(np.searchsorted(taken, rest))
        return min(1.0, float(self.p_sum[n]) / float(self.q_sum[n] - rest)), 0.0

    def divergence(self, a: float, b: float) -> float:
        """KL(p || clip(q, p/b, p/a))."""
        low = int(np.searchsorted(self.ratio, a)) if a > 0 else 0
        high = int(np.searchsorted(self.ratio, b))
        raised = float(self.p_sum[-1] - self.p_sum[high]) + self.p_alone
        value = float(self.gain[high] - self.gain[low])
        if a > 0:
            value += float(self.p_sum[low]) * float(np.log(a))
        if raised > 0:
            value += raised * float(np.log(b))
        return value


def mentored_law(
    p: NDArray[np.float64], q: NDArray[np.float64], d: float, tolerance: float
) -> MentoredLaw:
    """Solve for a and b.

    Args:
        p: target law [n]; may have zeros.
        q: draft law [n]; may have zeros.
        d: largest KL(p || final) in nats.
        tolerance: how far from d the solution may be.

    KL(p || q) <= d keeps q as it is. Otherwise the divergence grows with b, from 0 at b = 1;
    a follows from the sum. (Searching for a instead would leave b ill-determined where little
    mass is raised, such as V_O.)
    """
    if d <= 0:
        return MentoredLaw(1.0, 1.0, 0.0, 0.0)
    parts = _Sorted(p, q)
    whole = np.inf if parts.p_alone > 0 else float(parts.gain[-1])
    if whole <= d:
        return MentoredLaw(0.0, np.inf, 1.0, whole)

    def at(log_b: float) -> MentoredLaw:
        b = math.exp(log_b)
        a, kept = parts.lowered(parts.raised(b))
        return MentoredLaw(a, b, kept, parts.divergence(a, b))

    low, high = 0.0, _LOG_LARGEST if parts.p_alone > 0 else math.log(parts.ratio[-1])
    best = MentoredLaw(1.0, 1.0, 0.0, 0.0)
    while d - best.divergence > tolerance:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        tried = at(middle)
        if tried.divergence <= d:
            low, best = middle, tried
        else:
            high = middle
    return best
