"""The smoothed likelihood of `consultant`."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from edge_sdk.decoding.coins import PrfCoins, Side
from edge_sdk.decoding.consultant import Consultant, chinchilla_loss
from edge_sdk.sampling import Sampling
from server_app.methods.base import Pair, Proposal
from server_app.methods.consultant import ConsultantServer
from server_app.methods.rows import Rows

BETA = 0.2
LAW = np.array([0.6, 0.3, 0.09, 0.01])
PAIR = Pair("pair", np.arange(4))


def half(epsilon: float = 2.0, temperature: float = 1.0) -> ConsultantServer:
    sampling = Sampling(temperature=temperature)
    coins = PrfCoins(seed=3, side=Side.SERVER)
    return ConsultantServer(Consultant(epsilon=epsilon, beta=BETA), sampling, coins)


def rows(*, temperature: float = 1.0, count: int = 4) -> Rows:
    logits = torch.tensor(np.log(np.tile(LAW, (count, 1))))
    return Rows(logits, Sampling(temperature=temperature), torch.tensor([], dtype=torch.int64))


def smoothed(r: float, token: int) -> float:
    return BETA * r + (1 - BETA) * -math.log(LAW[token])


def test_r_follows_the_accepted_tokens() -> None:
    consultant, r = half(), 0.0
    for position, token in enumerate([0, 1, 0, 1]):
        assert consultant.accepts(rows(), position, Proposal([0, 1, 0, 1]), position=position)
        r = smoothed(r, token)
        assert consultant.state == pytest.approx(r, abs=1e-12)


def test_r_of_a_refused_token_is_discarded_and_the_settled_one_counts() -> None:
    consultant = half(epsilon=1.5)
    proposal = Proposal([1, 3])
    assert consultant.accepts(rows(), 0, proposal, position=0)
    before = smoothed(0.0, 1)
    assert not consultant.accepts(rows(), 1, proposal, position=1)
    assert consultant.state == pytest.approx(before)
    settled = consultant.reject(rows(), 1, proposal, PAIR, position=1).token
    assert settled is not None
    assert consultant.state == pytest.approx(smoothed(before, settled))
    expected = -math.log(LAW[1]) - math.log(LAW[settled])
    assert consultant.take_nll() == pytest.approx(expected)
    assert consultant.take_nll() == 0


def test_the_bound_is_reached_and_not_passed() -> None:
    exactly = smoothed(0.0, 2)
    assert half(exactly * (1 + 1e-9)).accepts(rows(), 0, Proposal([2]), position=0)
    assert not half(exactly * (1 - 1e-9)).accepts(rows(), 0, Proposal([2]), position=0)


def test_the_bound_looks_at_the_raw_law() -> None:
    """At temperature 0.1 the third id has no mass to speak of; the raw law decides."""
    assert half(temperature=0.1).accepts(rows(temperature=0.1), 0, Proposal([2]), position=0)


def test_settles_the_likeliest_at_temperature_0() -> None:
    consultant = half(temperature=0.0)
    assert consultant.settle(rows(temperature=0.0), 0, position=5) == 0
    assert consultant.state == pytest.approx(smoothed(0.0, 0))


def test_settles_from_the_law_otherwise() -> None:
    consultant = half()
    drawn = np.bincount(
        [consultant.settle(rows(), 0, position=position) for position in range(3000)], minlength=4
    )
    assert np.abs(drawn / 3000 - LAW).max() < 0.03


def test_a_session_is_taken_up_where_it_was() -> None:
    one, other = half(1.2), half(1.2)
    proposal = Proposal([1])
    assert one.accepts(rows(), 0, proposal, position=0)
    assert one.state is not None
    other.resume(one.state)
    assert other.state == one.state
    assert one.accepts(rows(), 0, proposal, position=1)
    assert other.accepts(rows(), 0, proposal, position=1)
    assert other.state == one.state
    assert half(1.2).state == 0


def test_chinchilla() -> None:
    """Hoffmann et al. 2022, for 70e9 parameters and 1.4e12 tokens: 1.94."""
    assert chinchilla_loss(70e9, 1.4e12) == pytest.approx(1.9366, abs=1e-3)
    method = Consultant(epsilon="chinchilla", parameters=270e6, tokens=6e12)
    expected = 1.69 + 406.4 / 270e6**0.34 + 410.7 / 6e12**0.28
    assert method.threshold == pytest.approx(expected, abs=1e-12)
    assert 2.3 < method.threshold < 2.5
