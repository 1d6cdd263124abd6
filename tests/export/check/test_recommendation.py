from __future__ import annotations

import pytest

from export.check.agreement import tokens_a_round
from export.check.recommendation import MOST_GAMMA, Costs, recommend


def test_the_formula() -> None:
    costs = Costs(0.01, {1: 0.1, 4: 0.13})
    found = recommend({"hybrid": 0.7}, costs, rtts_ms=(50.0, 0.0))
    assert [choice.rtt_ms for choice in found.choices] == [0.0, 50.0]
    for choice, curve in zip(found.choices, found.curves, strict=True):
        assert len(curve) == MOST_GAMMA
        g = choice.gamma
        expected = tokens_a_round(0.7, g) * 0.1 / (g * 0.01 + 0.1 + 0.01 * g + choice.rtt_ms / 1e3)
        assert choice.speedup == pytest.approx(expected) == max(curve)
        assert choice.method == "hybrid"
    # At that round trip the best gamma is as fast as the server alone.
    edge = recommend({"hybrid": 0.7}, costs, rtts_ms=(found.pays_up_to_ms,))
    assert max(edge.curves[0]) == pytest.approx(1.0)
    assert edge.choices[0].method == "autoregressive"


def test_a_slow_draft_is_no_help() -> None:
    found = recommend({"hybrid": 0.5, "coupled": 0.5}, Costs(0.2, {1: 0.1}), rtts_ms=(0.0,))
    assert (found.choices[0].method, found.choices[0].gamma) == ("autoregressive", 0)
    assert found.pays_up_to_ms == 0.0


@pytest.mark.parametrize(("coupled", "method"), [(0.70, "coupled"), (0.5, "hybrid")])
def test_coupled_where_it_costs_little(coupled: float, method: str) -> None:
    costs = Costs(0.005, {1: 0.1})
    found = recommend({"hybrid": 0.7, "coupled": coupled}, costs, rtts_ms=(20.0,))
    assert found.choices[0].method == method


def test_passes_between_and_beyond() -> None:
    costs = Costs(0.0, {1: 1.0, 4: 4.0, 8: 6.0})
    assert [costs.pass_of(n) for n in (1, 2, 6, 10)] == pytest.approx([1.0, 2.0, 5.0, 7.0])
    assert Costs(0.0, {1: 1.0}).pass_of(9) == 1.0
