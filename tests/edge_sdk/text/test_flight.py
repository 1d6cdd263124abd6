"""Blocks under way: which verdict makes what follows stale, and sessions that are lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from edge_sdk.decoding.method import Drafted
from edge_sdk.errors import SessionLost
from edge_sdk.session import Session
from edge_sdk.text.blocks import Block
from edge_sdk.text.flight import Flight
from edge_sdk.text.rounds import Rounds
from edge_sdk.transport import Exchange
from edge_sdk.wire import Verdict, Verify

COST = Exchange(1, 1, 1, 1)


class FakeSession:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.answers: dict[int, asyncio.Future[Verdict]] = {}
        self.reopened: list[int] = []

    async def verify(self, message: Verify) -> tuple[Verdict, Exchange]:
        answer = self.answers[message.sequence] = asyncio.get_running_loop().create_future()
        return await answer, COST

    async def reopen(self, generated: Any, number: int, state: float | None) -> None:
        self.reopened.append(number)

    def answer(self, sequence: int, accepted: int) -> None:
        self.answers[sequence].set_result(Verdict(sequence, accepted))


class FakeRounds:
    generated: tuple[int, ...] = ()
    state = None
    next_sequence = 9

    def __init__(self, again: list[Block]) -> None:
        self._again = again

    def renewed(self) -> list[Block]:
        return self._again


def block(sequence: int, *, doomed: bool = False) -> Block:
    return Block(Verify(sequence, 0), [Drafted(1), Drafted(2)], [0, 1], doomed=doomed)


async def flight_of(*blocks: Block, again: list[Block] | None = None) -> tuple[Flight, FakeSession]:
    session = FakeSession()
    flight = Flight(cast("Session", session), cast("Rounds", FakeRounds(again or [])))
    for one in blocks:
        flight.send(one)
    await asyncio.sleep(0)
    return flight, session


async def told(flight: Flight) -> bool:
    """A refusal is told at once."""
    try:
        async with asyncio.timeout(0.02):
            await flight.refusal()
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(("accepted", "refuses"), [(2, False), (1, True), (0, True)])
async def test_a_refusal_is_told_an_acceptance_is_not(accepted: int, refuses: bool) -> None:
    flight, session = await flight_of(block(0))
    assert not await told(flight)
    session.answer(0, accepted)
    assert await told(flight) == refuses
    await flight.clear()


async def test_a_stale_verdict_refuses_nothing_that_came_after() -> None:
    flight, session = await flight_of(block(0, doomed=True), block(1, doomed=True), block(2))
    session.answer(0, -1)
    session.answer(1, -1)
    assert not await told(flight)
    session.answer(2, 1)
    assert await told(flight)
    await flight.clear()


async def test_a_lost_session_whose_blocks_were_all_stale() -> None:
    flight, session = await flight_of(block(0, doomed=True))
    session.answers[0].set_exception(SessionLost("gone"))
    assert await flight.oldest() is None
    assert session.reopened == [9]
    assert len(flight) == 0


async def test_a_lost_session_sends_what_may_be_accepted_again() -> None:
    again = block(1)
    flight, session = await flight_of(block(0, doomed=True), block(1), again=[again])
    session.answers[0].set_exception(SessionLost("gone"))
    waiting = asyncio.create_task(flight.oldest())
    await asyncio.sleep(0.01)
    assert session.reopened == [1]
    session.answer(1, 2)
    answered = await waiting
    assert answered is not None
    assert answered.block is again
