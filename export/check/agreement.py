"""The chance that a drafted token is accepted, from the two laws of a position."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def overlap(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """sum_v min(p(v), q(v)): what `hybrid`, `candidates` and `full` accept (Leviathan et al.
    2023, eq. 7; arXiv 2211.17192).

    Args:
        p: target law on V_C [|V_C|]; less than 1 in sum where V_O has mass.
        q: draft law on V_C [|V_C|].
    """
    return float(np.minimum(p, q).sum())


def coupled(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Chance that argmax(ln p + g) = argmax(ln q + g) with one Gumbel noise g on both sides:
    what `coupled` accepts.

    With e(w) = exp(-g(w)), exponential and independent, v wins on both sides where e(w) >=
    e(v) max(p(w)/p(v), q(w)/q(v)) for every w of V. Its chance is 1 / sum_w of these maxima,
    and the sum over v is returned. Sorted by p/q, both parts of the inner sum are cumulated.

    Args:
        p, q: as `overlap`; the mass of p that is missing lies on V_O.
    """
    outside = max(0.0, 1.0 - float(p.sum()))
    held = (p > 0) | (q > 0)
    p, q = p[held], q[held]
    with np.errstate(divide="ignore"):
        order = np.argsort(-(p / q), kind="stable")
    p, q = p[order], q[order]
    above = np.cumsum(p) + outside  # of p, where p(w)/q(w) >= p(v)/q(v)
    below = q.sum() - np.cumsum(q)  # of q, the rest
    both = (p > 0) & (q > 0)
    inner = above[both] / p[both] + np.maximum(below[both], 0.0) / q[both]
    return float((1.0 / inner).sum())


def tokens_a_round(acceptance: float, gamma: int) -> float:
    """E[N] = (1 - a^(gamma+1)) / (1 - a): tokens that a round of `gamma` drafts settles, if
    each is accepted with chance a whatever came before (Leviathan et al. 2023, eq. 1)."""
    if acceptance >= 1.0:
        return float(gamma + 1)
    return float((1.0 - acceptance ** (gamma + 1)) / (1.0 - acceptance))
