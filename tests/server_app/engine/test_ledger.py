"""Numbered requests take effect once and in order."""

from __future__ import annotations

import asyncio

import pytest

from edge_sdk.errors import SequenceConflict, SequenceGap
from server_app.engine import ledger as module
from server_app.engine.ledger import Ledger, Numbered


class Counted:
    """Replies that tell how often they were made."""

    def __init__(self, reply: bytes = b"reply") -> None:
        self.reply = reply
        self.calls = 0

    async def __call__(self, numbered: Numbered) -> bytes:
        self.calls += 1
        await asyncio.sleep(0)
        return self.reply


async def test_the_same_request_gets_the_stored_reply() -> None:
    ledger, made = Ledger(), Counted()
    assert await ledger.once(0, b"x", made) == b"reply"
    assert await ledger.once(0, b"x", made) == b"reply"
    assert made.calls == 1
    with pytest.raises(SequenceConflict, match="another body"):
        await ledger.once(0, b"y", made)


async def test_two_at_once_are_one() -> None:
    ledger, made = Ledger(), Counted()
    replies = await asyncio.gather(*(ledger.once(0, b"x", made) for _ in range(5)))
    assert replies == [b"reply"] * 5
    assert made.calls == 1


async def test_requests_wait_for_those_before_them() -> None:
    ledger = Ledger()
    order: list[int] = []

    def noted(number: int) -> Counted:
        class Noted(Counted):
            async def __call__(self, numbered: Numbered) -> bytes:
                order.append(number)
                return await super().__call__(numbered)

        return Noted()

    await asyncio.gather(*(ledger.once(n, b"%d" % n, noted(n)) for n in (2, 0, 3, 1)))
    assert order == [0, 1, 2, 3]


async def test_a_gap_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GAP_SECONDS", 0.05)
    ledger, made = Ledger(), Counted()
    with pytest.raises(SequenceGap, match="waited"):
        await ledger.once(1, b"x", made)
    with pytest.raises(SequenceGap, match="past the next one"):
        await ledger.once(99, b"x", made)
    assert made.calls == 0


async def test_what_failed_may_be_corrected() -> None:
    async def fails(numbered: Numbered) -> bytes:
        raise ValueError("no")

    ledger, made = Ledger(), Counted()
    with pytest.raises(ValueError, match="no"):
        await ledger.once(0, b"x", fails)
    assert await ledger.once(0, b"y", made) == b"reply"


async def test_a_caller_that_goes_away_stops_nothing() -> None:
    ledger, made = Ledger(), Counted()
    task = asyncio.create_task(ledger.once(0, b"x", made))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ledger.once(0, b"x", made) == b"reply"
    assert made.calls == 1


async def test_replies_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 250)
    ledger, made = Ledger(), Counted(bytes(100))
    for number in range(6):
        await ledger.once(number, b"%d" % number, made)
    assert await ledger.once(5, b"5", made) == bytes(100)
    assert await ledger.once(4, b"4", made) == bytes(100)
    with pytest.raises(SequenceConflict, match="no longer kept"):
        await ledger.once(3, b"3", made)
    big = Counted(bytes(1000))
    await ledger.once(6, b"6", big)
    assert await ledger.once(6, b"6", big) == bytes(1000)
    assert big.calls == 1


async def test_one_that_takes_long_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GAP_SECONDS", 0.02)

    async def slow(numbered: Numbered) -> bytes:
        await asyncio.sleep(0.1)
        return b"slow"

    ledger, made = Ledger(), Counted()
    assert await asyncio.gather(ledger.once(0, b"x", slow), ledger.once(1, b"y", made)) == [
        b"slow",
        b"reply",
    ]


async def test_those_behind_one_that_failed_do_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GAP_SECONDS", 0.02)

    async def fails(numbered: Numbered) -> bytes:
        raise ValueError("no")

    ledger, made = Ledger(), Counted()
    results = await asyncio.gather(
        ledger.once(0, b"x", fails), ledger.once(1, b"y", made), return_exceptions=True
    )
    assert [type(result) for result in results] == [ValueError, SequenceGap]


async def test_a_request_is_wanted_while_somebody_waits() -> None:
    seen: list[Numbered] = []
    go = asyncio.Event()

    async def waits(numbered: Numbered) -> bytes:
        seen.append(numbered)
        await go.wait()
        return b"reply"

    ledger = Ledger()
    first = asyncio.create_task(ledger.once(0, b"x", waits))
    await asyncio.sleep(0.01)
    assert seen[0].wanted()
    first.cancel()
    await asyncio.sleep(0.01)
    assert not seen[0].wanted()
    second = asyncio.create_task(ledger.once(0, b"x", waits))
    await asyncio.sleep(0.01)
    assert seen[0].wanted()
    go.set()
    assert await second == b"reply"
    assert len(seen) == 1
