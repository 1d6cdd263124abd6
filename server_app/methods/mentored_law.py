"""The law of `mentored`: clip(q, p/b, p/a) within a divergence of p."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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

    def excess(self, a: float) -> float:
        """Sum of max(q - p/a, 0) over ids with p > 0."""
        if a <= 0:
            return 0.0
        n = int(np.searchsorted(self.ratio, a))
        return float(self.q_sum[n] - self.p_sum[n] / a)

    def solve_b(self, mass: float) -> float:
        """b >= 1 with sum of max(p/b - q, 0) = mass."""
        p_from = self.p_sum[-1] - self.p_sum + self.p_alone
        q_from = self.q_sum[-1] - self.q_sum
        if mass <= 0:
            # No id may be raised: b is the largest ratio.
            return np.inf if self.p_alone > 0 else float(self.ratio[-1])
        # With the ids from n on raised, b = p_from / (mass + q_from); n is the first whose
        # ratio is at least that b.
        b = p_from / (mass + q_from)
        n = int(np.argmax(np.append(self.ratio, np.inf) >= b))
        return float(max(1.0, b[n]))

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

    KL(p || q) <= d keeps q as it is. Otherwise the divergence falls from KL(p || q) to 0 as
    first `kept` goes from 1 to 0 and then a from 0 to 1; b follows from the sum.
    """
    if d <= 0:
        return MentoredLaw(1.0, 1.0, 0.0, 0.0)
    parts = _Sorted(p, q)
    whole = np.inf if parts.p_alone > 0 else float(parts.gain[-1])
    if whole <= d:
        return MentoredLaw(0.0, np.inf, 1.0, whole)

    def at(a: float, kept: float) -> MentoredLaw:
        b = parts.solve_b((1 - kept) * parts.q_alone + parts.excess(a))
        return MentoredLaw(a, b, kept, parts.divergence(a, b))

    by_kept = at(0.0, 0.0).divergence <= d
    # `low` is too far from the target, `high` is within d.
    low, high = (1.0, 0.0) if by_kept else (0.0, 1.0)
    best = at(0.0, high) if by_kept else at(high, 0.0)
    for _ in range(200):
        middle = (low + high) / 2
        tried = at(0.0, middle) if by_kept else at(middle, 0.0)
        if tried.divergence <= d:
            high, best = middle, tried
        else:
            low = middle
        if d - best.divergence <= tolerance:
            break
    return best
