"""Which sessions a store holds, and which one it gives up."""

from __future__ import annotations

import pytest
from harness.serving import toy_target

from edge_sdk.errors import ServerUnavailable, SessionLost
from edge_sdk.sampling import Sampling
from edge_sdk.wire import Generation
from server_app.engine.ledger import Ledger
from server_app.engine.session import Session
from server_app.engine.store import Held, SessionStore
from server_app.opening import Opening

OPENING = Opening(toy_target())


def held(owner: str, name: str) -> Held:
    generation = Generation("autoregressive", Sampling(), max_tokens=1, seed=0)
    session = Session(
        prompt_ids=[1],
        generation=generation,
        half=OPENING.half(generation),
        pair=None,
        owner=owner,
    )
    return Held(name, session, Ledger(), b"", b"")


def test_the_least_recently_used_that_is_idle_goes() -> None:
    store = SessionStore(limit=3, ttl=60.0)
    first, second, third = held("a", "1"), held("b", "1"), held("a", "2")
    for one in (first, second, third):
        assert store.add(one) is None
    assert store.get("a", "1") is first
    with second.in_use():
        assert store.add(held("c", "1")) is third
    assert store.names() == [("b", "1"), ("a", "1"), ("c", "1")]
    with pytest.raises(SessionLost):
        store.get("a", "2")


def test_all_in_use_is_refused() -> None:
    store = SessionStore(limit=1, ttl=60.0)
    only = held("a", "1")
    store.add(only)
    with only.in_use(), pytest.raises(ServerUnavailable, match="all 1 sessions"):
        store.add(held("b", "1"))
    assert store.names() == [("a", "1")]
    assert store.count("b") == 0


def test_owners_are_counted_apart() -> None:
    store = SessionStore(limit=9, ttl=60.0)
    mine, other = [held("a", name) for name in "123"], held("b", "1")
    for one in [*mine, other]:
        store.add(one)
    assert (store.count("a"), store.count("b"), store.count("c")) == (3, 1, 0)
    store.get("a", "1")
    assert store.idle_of("a", 60.0) is None
    with mine[1].in_use():
        assert store.idle_of("a", 0.0) is mine[2]
    assert store.idle_of("c", 0.0) is None
    store.discard(mine[2])
    store.discard(mine[0])
    assert store.close("b", "1") is other
    assert store.close("b", "1") is None
    assert (store.count("a"), store.count("b"), len(store)) == (1, 0, 1)


def test_another_session_of_the_same_name_is_not_discarded() -> None:
    store = SessionStore(limit=9, ttl=60.0)
    before, now = held("a", "1"), held("a", "1")
    store.add(before)
    store.close("a", "1")
    store.add(now)
    store.discard(before)
    assert store.find("a", "1") is now


def test_what_was_closed_is_remembered_for_a_while() -> None:
    store = SessionStore(limit=9, ttl=60.0)
    store.close("a", "1")
    assert store.was_closed("a", "1")
    assert not store.was_closed("b", "1")
    for number in range(2000):
        store.close("b", str(number))
    assert store.was_closed("b", "1999")
    assert not store.was_closed("b", "0")
    # What others close does not count.
    assert store.was_closed("a", "1")


def test_those_past_their_time_expire_unless_in_use() -> None:
    store = SessionStore(limit=9, ttl=60.0)
    old, used, new = held("a", "1"), held("a", "2"), held("a", "3")
    for one in (old, used, new):
        store.add(one)
    old.used -= 61.0
    used.used -= 61.0
    used.busy = 1
    assert store.expire() == [old]
    assert store.names() == [("a", "2"), ("a", "3")]
