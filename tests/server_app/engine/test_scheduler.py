"""Which works share a step. No clock, no thread, no model."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server_app.engine.scheduler import Policy, Scheduler, Waiting


def work(number: int, *, owner: str = "a", session: int | None = None, tokens: int = 5) -> Waiting:
    return Waiting(number, owner, number if session is None else session, tokens, arrived=0.0)


def numbers(scheduler: Scheduler, *works: Waiting) -> list[int]:
    return [grant.number for grant in scheduler.choose(works)]


def test_all_verifies_that_wait_share_a_step() -> None:
    scheduler = Scheduler(Policy(batch_tokens=512))
    assert sorted(numbers(scheduler, *(work(n) for n in range(16)))) == list(range(16))


def test_one_work_of_a_session_at_a_time_and_in_order() -> None:
    scheduler = Scheduler(Policy())
    chosen = numbers(scheduler, work(3, session=1), work(1, session=1), work(2, session=2))
    assert sorted(chosen) == [1, 2]


def test_short_works_come_before_long_ones_which_get_what_is_left() -> None:
    scheduler = Scheduler(Policy(batch_tokens=100, prefill_chunk=30))
    grants = scheduler.choose([work(0, tokens=4000), *(work(n, tokens=5) for n in range(1, 5))])
    assert [grant.number for grant in grants] == [1, 2, 3, 4, 0]
    assert grants[-1].tokens == 30
    assert scheduler.choose([work(0, tokens=4000)])[0].tokens == 30


def test_long_works_are_not_starved_by_short_ones() -> None:
    scheduler = Scheduler(Policy(batch_tokens=100, prefill_chunk=50))
    grants = scheduler.choose([work(0, tokens=4000), *(work(n, tokens=20) for n in range(1, 50))])
    granted = {grant.number: grant.tokens for grant in grants}
    assert granted[0] >= 25
    assert sum(granted.values()) <= 100


def test_what_is_larger_than_a_step_still_gets_one() -> None:
    scheduler = Scheduler(Policy(batch_tokens=4, prefill_chunk=512))
    assert [grant.tokens for grant in scheduler.choose([work(0, tokens=9)])] == [4]


def test_owners_share_the_model_evenly() -> None:
    """One owner with many sessions does not crowd out one with a single session."""
    scheduler = Scheduler(Policy(batch_tokens=20))
    served: Counter[str] = Counter()
    waiting = {n: work(n, owner="many") for n in range(100)}
    waiting[100] = work(100, owner="lone", session=-1)
    number = 100
    for _ in range(20):
        for grant in scheduler.choose(list(waiting.values())):
            done = waiting.pop(grant.number)
            served[done.owner] += grant.tokens
            number += 1
            session = -1 if done.owner == "lone" else number
            waiting[number] = work(number, owner=done.owner, session=session)
    # Its single session can take one work of 5 tokens a step, and does.
    assert served == {"lone": 20 * 5, "many": 20 * 15}


def test_an_owner_that_was_away_has_saved_up_nothing() -> None:
    scheduler = Scheduler(Policy(batch_tokens=5))
    for n in range(50):
        numbers(scheduler, work(n, owner="busy"))
    first = [
        numbers(scheduler, work(2 * n, owner="back"), work(2 * n + 1, owner="busy"))[0] % 2
        for n in range(50, 60)
    ]
    # One turn ahead at first, then evenly.
    assert first.count(0) in (5, 6)


@pytest.mark.parametrize("ahead", [0, 3])
def test_order_of_arrival_within_an_owner(ahead: int) -> None:
    scheduler = Scheduler(Policy(batch_tokens=10))
    works = [work(n + ahead) for n in range(6)]
    assert numbers(scheduler, *reversed(works)) == [ahead, ahead + 1]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(1, 900)),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 600),
    st.integers(1, 600),
)
def test_every_choice_keeps_the_rules(
    works: list[tuple[int, int, int]], batch: int, chunk: int
) -> None:
    scheduler = Scheduler(Policy(batch_tokens=batch, prefill_chunk=chunk))
    waiting = [
        Waiting(number, f"o{owner}", 10 * owner + session, tokens, 0.0)
        for number, (owner, session, tokens) in enumerate(works)
    ]
    grants = scheduler.choose(waiting)
    by_number = {work.number: work for work in waiting}
    assert grants
    sessions = [by_number[grant.number].session for grant in grants]
    assert len(set(sessions)) == len(sessions)
    assert sum(grant.tokens for grant in grants) <= batch
    for grant in grants:
        chosen = by_number[grant.number]
        assert 0 < grant.tokens <= chosen.tokens
        assert not any(
            other.session == chosen.session and other.number < chosen.number for other in waiting
        )


def steady(scheduler: Scheduler, gap: float, count: int = 50) -> float:
    for n in range(count):
        scheduler.arrived(n * gap)
    return (count - 1) * gap


def test_a_lone_client_is_not_made_to_wait() -> None:
    scheduler = Scheduler(Policy(wait=0.002))
    now = steady(scheduler, 0.05)
    lone = Waiting(1, "a", 1, 5, now)
    assert scheduler.patience([lone], now, active=1) == 0
    assert scheduler.patience([lone], now, active=9) == 0


def test_a_step_waits_for_those_that_are_about_to_come_but_not_for_long() -> None:
    scheduler = Scheduler(Policy(wait=0.002))
    now = steady(scheduler, 0.0003)
    waiting = [Waiting(1, "a", 1, 5, now)]
    patience = scheduler.patience(waiting, now, active=16)
    assert 0 < patience <= 0.002
    assert scheduler.patience(waiting, now + 0.0019, active=16) == 0  # it would have come by now
    scheduler.arrived(now + 0.0018)
    assert scheduler.patience(waiting, now + 0.0021, active=16) == 0  # waited long enough


def test_nobody_waits_when_everybody_is_there() -> None:
    scheduler = Scheduler(Policy(wait=0.002))
    now = steady(scheduler, 0.0003)
    waiting = [Waiting(n, "a", n, 5, now) for n in range(3)]
    assert scheduler.patience(waiting, now, active=3) == 0
    assert scheduler.patience([], now, active=3) == 0
