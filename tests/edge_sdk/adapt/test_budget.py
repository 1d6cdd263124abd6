"""The account of what trying may cost."""

from __future__ import annotations

import pytest

from edge_sdk.adapt.budget import Budget


def test_trials_cost_a_share_of_the_time() -> None:
    budget = Budget()
    assert budget.empty
    budget.passed(100.0)
    assert not budget.empty
    assert budget.wait(1.5, hopeless=False) == 0
    assert budget.wait(3.0, hopeless=False) == pytest.approx(100.0)
    assert budget.wait(3.0, hopeless=True) == pytest.approx(1400.0)
    budget.lose(1.5)
    assert budget.empty


def test_a_loan_is_given_once() -> None:
    budget = Budget()
    budget.lend(100.0)
    budget.lend(100.0)
    budget.lose(1.6)
    assert budget.empty


def test_gains_make_up_for_losses_and_are_not_saved() -> None:
    budget = Budget()
    budget.passed(100.0)
    budget.lose(1.0)
    budget.lose(-50.0)
    budget.lose(1.6)
    assert budget.empty


def overdrawn() -> Budget:
    budget = Budget()
    budget.lend(100.0, overdraft=200.0)
    budget.lose(4.0)
    return budget


def test_the_first_trial_may_overdraw() -> None:
    budget = overdrawn()
    assert not budget.empty
    assert budget.wait(0.0, hopeless=False) > 0
    budget.lose(0.6)
    assert budget.empty


def test_an_overdraft_that_was_withdrawn_is_not_given_again() -> None:
    budget = overdrawn()
    budget.withdraw()
    budget.lend(100.0, overdraft=200.0)
    assert budget.empty
