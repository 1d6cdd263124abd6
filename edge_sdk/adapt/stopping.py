"""When a block of one at a time has enough tokens, and what stopping there is worth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edge_sdk.adapt.model import Costs


def worth_another(reached: float, mean: float, rate: float, costs: Costs) -> bool:
    """Whether drafting one more token pays.

    Args:
        reached: chance that the tokens of the block so far are all accepted.
        mean: chance of the next token, which is not drawn yet.
        rate: tokens a second at which the text goes on.
        costs: of the parts of a round.
    """
    return reached * mean >= rate * _token_cost(costs)


def stopped_rate(chances: NDArray[np.float64], *, mean: float, rate: float, costs: Costs) -> float:
    """Tokens a second of blocks that end by `worth_another`, one at a time.

    Renewal reward: expected tokens over expected seconds of a round, over sample blocks. The
    rate that the rule works with is the one that it attains, found by repeating (policy
    iteration; each step can only raise it).

    Args:
        chances: chances of acceptance in sample blocks, [blocks, longest].
        mean: chance of a token that is not drawn yet.
        rate: to begin with.
        costs: of the parts of a round.
    """
    reached = np.cumprod(chances, axis=1)
    before = np.concatenate([np.ones((len(chances), 1)), reached[:, :-1]], axis=1)
    base = costs.up + costs.round_trip + costs.verify + costs.down + costs.overhead
    for _ in range(2):
        drafted = before * mean >= rate * _token_cost(costs)
        drafted[:, 0] = True
        drafted = np.logical_and.accumulate(drafted, axis=1)
        tokens = 1 + float((reached * drafted).sum(axis=1).mean())
        seconds = base + float(drafted.sum(axis=1).mean()) * _token_cost(costs)
        rate = max(rate, tokens / seconds)
    return rate


def _token_cost(costs: Costs) -> float:
    return costs.draft + costs.up_token + costs.verify_row
