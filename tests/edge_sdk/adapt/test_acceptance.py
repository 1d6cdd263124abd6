"""How far drafts are accepted, learnt from verdicts."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.adapt.acceptance import Acceptance, Confidence


def taught(chance: float, verdicts: int, *, gamma: int = 4, seed: int = 0) -> Acceptance:
    acceptance = Acceptance()
    teach(acceptance, chance, verdicts, gamma=gamma, seed=seed)
    return acceptance


def teach(acceptance: Acceptance, chance: float, verdicts: int, *, gamma: int, seed: int) -> int:
    """Verdicts until the text seems to have changed, or all."""
    rng = np.random.default_rng(seed)
    for number in range(verdicts):
        kept = 0
        while kept < gamma and rng.random() < chance:
            kept += 1
        examined = kept + (kept < gamma)
        if acceptance.verdict(examined=examined, accepted=kept, settled=True):
            return number
    return verdicts


def test_few_samples_move_little_and_hope_more() -> None:
    acceptance = Acceptance()
    before = acceptance.survival()
    acceptance.verdict(examined=3, accepted=3, settled=True)
    after = acceptance.survival()
    assert before[4] < after[4] < 0.6
    assert acceptance.survival(hopeful=True)[4] > 1.3 * after[4]


@pytest.mark.parametrize("chance", [0.2, 0.6, 0.95])
def test_many_samples_give_the_chance(chance: float) -> None:
    acceptance = taught(chance, 600)
    assert acceptance.mean == pytest.approx(chance, abs=0.05)
    assert acceptance.survival()[3] == pytest.approx(chance**3, rel=0.25)
    hope = acceptance.survival(hopeful=True)[1] - acceptance.survival()[1]
    assert 0 < hope < 0.0625


def test_depths_differ_where_the_text_says_so() -> None:
    acceptance = Acceptance()
    # Either the first of four is refused or none is: the later ones are safe once it is kept.
    for number in range(400):
        kept = 0 if number % 2 else 4
        acceptance.verdict(examined=max(kept, 1), accepted=kept, settled=True)
    survival = acceptance.survival()
    assert survival[1] == pytest.approx(0.5, abs=0.08)
    assert survival[4] / survival[1] > 0.8


def test_depth_goes_on_over_blocks_that_settle_nothing() -> None:
    acceptance = Acceptance()
    for _ in range(100):
        acceptance.verdict(examined=2, accepted=2, settled=False)
        acceptance.verdict(examined=1, accepted=0, settled=True)
    survival = acceptance.survival()
    assert survival[2] > 0.8
    assert survival[3] / survival[2] < 0.3


def test_a_change_is_noticed_soon_and_none_is_seen_where_there_is_none() -> None:
    for before, after in ((0.9, 0.3), (0.3, 0.9)):
        acceptance = taught(before, 100)
        assert teach(acceptance, after, 100, gamma=4, seed=1) < 15
        teach(acceptance, after, 20, gamma=4, seed=2)
        assert acceptance.mean == pytest.approx(after, abs=0.15)
    false = sum(teach(Acceptance(), 0.95, 300, gamma=8, seed=s) < 300 for s in range(20))
    assert false <= 2


def test_other_methods_are_refused_oftener() -> None:
    acceptance = taught(0.8, 300)
    asked = acceptance.survival(refusals=1.5)[1]
    assert 1 - asked == pytest.approx(1.5 * (1 - acceptance.survival()[1]))
    before = acceptance.mean
    acceptance.begin(refusals=1.5)
    assert 1 - acceptance.mean == pytest.approx(1.5 * (1 - before), rel=0.05)


def fed(over: float, *, seed: int = 0) -> Confidence:
    """A table taught by a draft that believes b where b**over is true."""
    rng, table = np.random.default_rng(seed), Confidence()
    for _ in range(1500):
        beliefs = rng.random(4)
        kept = 0
        while kept < 4 and rng.random() < beliefs[kept] ** over:
            kept += 1
        table.verdict(beliefs.tolist(), examined=kept + (kept < 4), accepted=kept)
    return table


def test_belief_is_calibrated_by_its_record() -> None:
    modest, boaster = fed(1.0), fed(3.0)
    assert modest.telling
    assert boaster.telling
    assert modest.chance(0.8, 0.5) == pytest.approx(0.8, abs=0.06)
    assert boaster.chance(0.8, 0.5) == pytest.approx(0.8**3, abs=0.1)


def test_a_boast_without_a_record_is_worth_the_mean() -> None:
    table = Confidence()
    assert table.chance(0.999, 0.4) == pytest.approx(0.4)
    table.verdict([0.999], examined=1, accepted=1)
    assert table.chance(0.999, 0.4) < 0.5
    assert not table.telling


def test_belief_that_says_nothing_is_not_telling() -> None:
    rng, table, alarms = np.random.default_rng(3), Confidence(), 0
    for _ in range(1000):
        beliefs = rng.random(2)
        kept = int(rng.random() < 0.7)
        table.verdict(beliefs.tolist(), examined=kept + 1, accepted=kept)
        alarms += table.telling
    assert alarms < 30
