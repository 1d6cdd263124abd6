"""How long head and tail are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edge_sdk.decoding.coins import PrfCoins, Side
from edge_sdk.decoding.head_tail import HeadTail
from edge_sdk.wire import decode
from edge_sdk.wire.packing import unpack_tokens
from server_app.methods.head_tail import (
    MOST_HEAD,
    MOST_MORE,
    MOST_TAIL,
    RISK,
    HeadTailLaw,
    head_and_tail_sizes,
)
from server_app.methods.row_logits import RowLogits
from server_app.methods.weights import RowWeights

SIZE = 5000


def laws(spread: float) -> np.ndarray:
    law = np.exp(spread * np.random.default_rng(3).normal(size=SIZE))
    return np.sort(law / law.sum())[::-1]


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0, 2.0, 4.0, 12.0])
def test_the_tail_rarely_runs_out_and_no_split_is_shorter(spread: float) -> None:
    head = laws(spread)[:MOST_HEAD]
    count, ahead = head_and_tail_sizes(head)
    tail_mass = 1 - head[:count].sum()
    assert tail_mass ** (ahead + 1) <= RISK * (1 + 1e-9) or ahead == MOST_TAIL
    for other in range(1, MOST_HEAD + 1):
        mass = 1 - head[:other].sum()
        needed = 0
        while needed < MOST_TAIL and mass ** (needed + 1) > RISK:
            needed += 1
        assert other + needed >= count + ahead


@pytest.mark.parametrize(
    ("head", "sizes"),
    [([1.0], (1, 0)), ([1.0, 0.0, 0.0], (1, 0)), ([0.9999, 0.0001], (1, 0)), ([0.5, 0.5], (2, 0))],
)
def test_small_heads(head: list[float], sizes: tuple[int, int]) -> None:
    assert head_and_tail_sizes(np.array(head)) == sizes


@pytest.mark.parametrize("spread", [0.0, 1.0, 12.0])
def test_the_reply_is_p_cut_in_two(spread: float) -> None:
    law = laws(spread)
    coins = PrfCoins(seed=1, side=Side.SERVER)
    logits = torch.from_numpy(np.log(law))
    weights = RowWeights(RowLogits(logits, torch.empty(0, dtype=torch.int64)), 1.0)
    cut = HeadTailLaw(weights, coins, position=4, law_format="f64")
    message = decode(HeadTail, cut.first(), limit=1 << 20)
    ids, p = unpack_tokens(message.head, "f64", size=SIZE)
    assert np.abs(law[ids] / p - 1).max() < 1e-12
    assert p.sum() + message.tail_mass == pytest.approx(1, abs=1e-12)
    drawn = 0
    logits.zero_()  # what the device may ask for later must not depend on the pass's memory
    for data in (message.tail, cut.more(), cut.more()):
        tail, tail_p = unpack_tokens(data, "f64", size=SIZE)
        assert not np.isin(tail, ids).any()
        assert np.abs(law[tail] / tail_p - 1).max() < 1e-12
        assert len(tail) <= (MOST_TAIL if data is message.tail else MOST_MORE)
        assert data is message.tail or len(tail) > 0
        drawn += len(tail)
    assert drawn > 8
