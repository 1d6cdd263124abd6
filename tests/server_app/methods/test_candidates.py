"""How many candidates a first block gets: history decides, never the draw at hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edge_sdk.decoding.candidates import CandidateBlock, Candidates
from edge_sdk.decoding.coins import PrfCoins, Side
from edge_sdk.decoding.head_tail import HeadTail
from edge_sdk.errors import BaseMismatch
from edge_sdk.sampling import Sampling
from edge_sdk.wire import decode
from edge_sdk.wire.packing import unpack_tokens
from server_app.methods.base import Pair, Proposal
from server_app.methods.candidates import CandidateCount, CandidatesServer
from server_app.methods.rows import Rows

SIZE = 40
ALL = Pair("pair", np.arange(SIZE))


def server(method: Candidates, seed: int = 1) -> CandidatesServer:
    return CandidatesServer(method, PrfCoins(seed=seed, side=Side.SERVER))


def rows(seed: int = 0) -> Rows:
    logits = torch.tensor(np.random.default_rng(seed).normal(size=(1, SIZE)))
    return Rows(logits, Sampling(), torch.tensor([], dtype=torch.int64))


def count(block: bytes) -> int:
    """Candidates in a block, repetitions counted."""
    message = decode(CandidateBlock, block, limit=1 << 20)
    ids, p = unpack_tokens(message.distinct, "f32", size=SIZE)
    assert (p > 0).all()
    assert len(set(ids.tolist())) == len(ids)
    return len(message.order) or len(ids)


def reject(half: CandidatesServer, position: int, pair: Pair = ALL) -> bytes:
    settlement = half.reject(rows(position), 0, Proposal([0], [1]), pair, position=position)
    assert settlement.token is None
    assert settlement.rejection is not None
    return settlement.rejection


def test_a_fixed_count_stays() -> None:
    half = server(Candidates(k=5, m=2, growth=1))
    for position in range(20):
        assert count(reject(half, position)) == 5
        half.more(1)


def test_blocks_grow_and_then_fall_back() -> None:
    half = server(Candidates(k=3, m=3, growth=2))
    assert count(reject(half, 0)) == 3
    assert count(half.more(1)) == 6
    assert count(half.more(2)) == 12
    fallback = decode(HeadTail, half.more(3), limit=1 << 20)
    ids, p = unpack_tokens(fallback.head, "f32", size=SIZE)
    assert p.sum() + fallback.tail_mass == pytest.approx(1, abs=1e-6)
    assert len(ids) > 0


def test_the_count_grows_after_asking_and_shrinks_after_enough() -> None:
    adaptive = CandidateCount(None, trip=32)
    start = adaptive.now
    for _ in range(200):
        adaptive.sufficed(True)
    least = adaptive.now
    assert least < start
    adaptive.sufficed(False)
    assert adaptive.now > least
    for _ in range(200):
        adaptive.sufficed(False)
    assert adaptive.now > start
    most = adaptive.now
    adaptive.sufficed(False)
    assert adaptive.now == most


def test_a_dearer_trip_asks_for_more_candidates() -> None:
    """Where the first block is too short one time in `k`, the balance is higher on a link
    whose trips cost more."""
    balance = []
    for trip in (4, 16, 64):
        rng = np.random.default_rng(1)
        adaptive = CandidateCount(None, trip)
        counts = []
        for _ in range(4000):
            counts.append(adaptive.now)
            adaptive.sufficed(bool(rng.random() > 1 / adaptive.now))
        balance.append(float(np.mean(counts)))
    assert balance == sorted(balance)
    assert balance[2] > balance[0] + 2


def test_only_an_earlier_rejection_changes_the_count() -> None:
    asking, content = server(Candidates()), server(Candidates())
    assert count(reject(asking, 0)) == count(reject(content, 0))
    asking.more(1)
    assert count(reject(asking, 1)) > count(reject(content, 1))


def test_a_list_ends_at_its_first_token_outside_the_common_vocabulary() -> None:
    half = server(Candidates(k=12, m=1))
    nothing = Pair("pair", np.array([SIZE - 1]))
    lengths = [count(reject(half, position, nothing)) for position in range(10)]
    assert max(lengths) <= 2


def test_nothing_can_be_asked_for_before_a_rejection_or_after_it_was_settled() -> None:
    half = server(Candidates())
    with pytest.raises(BaseMismatch):
        half.more(1)
    reject(half, 0)
    half.forget()
    with pytest.raises(BaseMismatch):
        half.more(1)
