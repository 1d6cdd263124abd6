"""The model of time: tokens a second from the parts of a round.

Words: d seconds to draft one token, o of the device for a round besides, u(g) for a request of g
drafted tokens to leave the device, v(g) of the server for it, w for the reply to cross the link,
R the round trip of an empty message. S(k) is the chance that the k next drafted tokens are all
accepted. A block's latency, from its last drafted token to its verdict taken in, is

    L(g) = u(g) + R + v(g) + w + o

**One block at a time.** A round yields the accepted prefix and the settled token:

    E[N] = 1 + S(1) + ... + S(g),    rate = E[N] / (g d + L(g))

which for S(k) = a**k is (1 - a**(g+1)) / (1 - a) of design and textbook (Leviathan et al. 2023).

**Draft-ahead**, W blocks in flight at most: a renewal process. A cycle begins when a rejection
has come in: nothing usable is in flight, and the device drafts on at once. Blocks then follow
each other through a line of stages (draft, uplink, server, downlink), each of which holds one
block at a time, so the verdict of the j-th comes at

    g d + L + (j - 1) M,    M = max(g d + o, u, v, w)

the slowest stage setting the pace. A window of W means in addition that block j is begun only
when the verdict of j - W is there, so W blocks never take less than g d + L: with j - 1 = W m + r,

    g d + L + m max(W M, g d + L) + r M

The cycle ends with the first block that is not accepted whole. The number J of whole ones before
it has E[J] = S(g) + S(2g) + ..., the number m = J div W has E[m] = S(W g) + S(2 W g) + ..., and
E[r] = E[J] - W E[m]. With `more` there is no bonus, so the cycle yields the accepted run and one
replacement, whatever g is: E[N] = 1 + S(1) + S(2) + ... By the renewal theorem

    rate = E[N] / (g d + L + E[m] max(W M, g d + L) + E[r] M + b)

where b is what a rejection leaves behind: half a token on average that is being drafted when the
verdict arrives, unless the window was full and the device idle, (W - 1) g d < L; and requests that
are stale but still queue for the uplink. While the rejected block was on its way the device sent
n = min(W - 1, L / (g d + o)) more, so the uplink stays busy for (n + 1) u - L; where it is slower
than the draft, u > g d + o, that delays the next block too, more become stale, and n grows to
W - 1. The server drops stale blocks without compute.

Against the simulation (`bench/simulation.py`, tests/edge_sdk/adapt/test_model.py): within 3 % one
block at a time; ahead, half of the settings within 1 %, 95 % within 5 %, and the worst, where a
stage saturates, 18 % off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_sdk.arguments import shown
from edge_sdk.errors import InvalidRequest
from edge_sdk.wire.limits import MAX_DRAFT, MAX_WINDOW

DEPTH: Final = 1024  # accepted tokens in a row beyond which S is taken as 0
GAMMAS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
WINDOWS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the parts of a round take, in seconds.

    Attributes:
        draft: of one drafted token.
        verify: of a pass of the target over one row.
        verify_row: of each further row.
        round_trip: of an empty exchange.
        up: of the bytes of a request without drafts on the uplink.
        up_token: of the bytes of each drafted token.
        down: of the bytes of a reply.
        overhead: of the device for a round besides drafting.
        alone: between two tokens of the server alone.
    """

    draft: float
    verify: float
    verify_row: float
    round_trip: float
    up: float
    up_token: float
    down: float
    overhead: float
    alone: float


class Grid:
    """Settings to choose among, with what does not depend on the costs computed once.

    Args:
        gammas: block lengths, ascending.
        windows: blocks in flight, ascending, the first being 1.

    Raises:
        InvalidRequest: they are not that, or beyond what the protocol allows.
    """

    def __init__(self, *, gammas: Sequence[int] = GAMMAS, windows: Sequence[int] = WINDOWS) -> None:
        _check("gammas", gammas, MAX_DRAFT)
        _check("windows", windows, MAX_WINDOW)
        if windows[0] != 1:
            raise InvalidRequest("windows must begin with 1, one block at a time", field="windows")
        self.gammas = np.array(gammas)
        self.windows = np.array(windows)
        products = self.gammas[:, None] * self.windows[None, :]
        steps, self._step_of = np.unique(products, return_inverse=True)
        self._step_of = self._step_of.reshape(products.shape)
        multiples = [np.arange(step, DEPTH + 1, step) for step in steps]
        # reduceat gives an element, not 0, for an empty stretch: each ends with an S of 0.
        self._indices = np.concatenate([np.append(part, DEPTH + 1) for part in multiples])
        lengths = [len(part) + 1 for part in multiples]
        self._starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])

    def rates(self, costs: Costs, survival: NDArray[np.float64]) -> NDArray[np.float64]:
        """Tokens a second by setting.

        Args:
            costs: of the parts.
            survival: S(0) = 1, S(1), ..., S(DEPTH), [DEPTH + 1].

        Returns:
            [gammas, windows].
        """
        g = self.gammas.astype(np.float64)
        padded = np.append(survival, 0.0)
        sums = np.add.reduceat(padded[self._indices], self._starts)
        whole_windows = sums[self._step_of]  # E[m], [gammas, windows]
        whole_blocks = whole_windows[:, :1]  # E[J], [gammas, 1]
        up = costs.up + costs.up_token * g
        verify = costs.verify + costs.verify_row * g
        drafting = costs.draft * g
        latency = up + costs.round_trip + verify + costs.down + costs.overhead
        pace = np.maximum.reduce(
            [drafting + costs.overhead, up, verify, np.full_like(g, costs.down)]
        )
        first = (drafting + latency)[:, None]
        pace = pace[:, None]
        window = self.windows[None, :].astype(np.float64)
        late = latency[:, None]
        begun = (drafting + costs.overhead)[:, None]
        sent = np.where(up[:, None] > begun, window - 1, np.minimum(window - 1, late / begun))
        behind = np.maximum(0.0, (sent + 1) * up[:, None] - late - drafting[:, None])
        behind += np.where((window - 1) * drafting[:, None] > late, costs.draft / 2, 0.0)
        cycle = (
            first
            + whole_windows * np.maximum(window * pace, first)
            + (whole_blocks - window * whole_windows) * pace
            + behind
        )
        rates: NDArray[np.float64] = survival.sum() / cycle
        rates[:, 0] = survival.cumsum()[self.gammas] / first[:, 0]
        return rates


def _check(name: str, values: Sequence[int], most: int) -> None:
    integers = all(type(value) is int and 1 <= value <= most for value in values)
    if not values or not integers or list(values) != sorted(set(values)):
        raise InvalidRequest(
            f"{name} is {shown(values)}; it must be ascending integers from 1 to {most}",
            field=name,
        )
