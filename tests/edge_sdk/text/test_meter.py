"""The parts of a text's time, and what is told of its rounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from types import SimpleNamespace

import pytest
from harness.serving import PROMPT, Faults, Serving, connected, related_draft, serving

from edge_sdk import Stats
from edge_sdk.adapt import Plan
from edge_sdk.decoding.candidates import Candidates
from edge_sdk.errors import SessionLost
from edge_sdk.session import Session
from edge_sdk.text import meter
from edge_sdk.text.blocks import Block, Outcome
from edge_sdk.text.flight import Answered
from edge_sdk.text.meter import Meter
from edge_sdk.text.round import Round
from edge_sdk.transport import Exchange
from edge_sdk.wire import Answer, Ask, Verdict, Verify


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as running:
        yield running


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    held = SimpleNamespace(now=0.0)
    monkeypatch.setattr(meter, "time", SimpleNamespace(perf_counter=lambda: held.now))
    return held


def answered(sent: float, received: float, server: float) -> Answered:
    block = Block(Verify(sequence=0, base=0, draft=b""), [], [])
    verdict = Verdict(sequence=0, accepted=0, settled=1)
    return Answered(block, verdict, Exchange(1, 2, 3, 4, server), received - sent, True, sent)


@pytest.mark.parametrize(
    ("begin", "verify", "link"),
    [
        (0.0, 0.4, 0.6),  # the whole trip was waited for
        (0.5, 0.2, 0.5 - 0.2),  # the device drafted until the server was half way
        (0.8, 0.0, 0.2),  # the server was done, its reply on its way
    ],
)
def test_a_wait_is_the_servers_where_it_overlaps_with_its_work(
    clock: SimpleNamespace, begin: float, verify: float, link: float
) -> None:
    stats = Stats()
    measured = Meter(stats)
    measured.begin()
    clock.now = 1.0
    measured.verdict(begin, answered(0.0, 1.0, 0.4))
    assert stats.verify_seconds == pytest.approx(verify)
    assert stats.link_seconds == pytest.approx(link)
    assert stats.overhead_seconds == pytest.approx(begin)


def test_drafting_and_what_is_left(clock: SimpleNamespace) -> None:
    stats, told = Stats(), list[Round]()
    measured = Meter(stats, told.append)
    clock.now = 1.0
    measured.begin()
    clock.now = 3.0
    plan = Plan(speculate=True, gamma=2)
    assert measured.drafted(1.5, None, plan) == 1.5
    clock.now = 4.0
    measured.mark()
    assert (stats.seconds, stats.draft_seconds, stats.overhead_seconds) == (3.0, 1.5, 1.5)
    (round_,) = told
    assert (round_.sequence, round_.sent, round_.stale) == (None, None, True)
    assert (round_.draft_begin, round_.draft_end) == (1.5, 3.0)


async def test_a_stretch_of_the_server_alone(clock: SimpleNamespace) -> None:
    stats, told = Stats(), list[Round]()
    measured = Meter(stats, told.append)

    async def tokens() -> AsyncGenerator[int, None]:
        for seconds in (0.5, 0.25):
            clock.now += seconds
            yield 7

    plan = Plan(speculate=False, tokens=2)
    async for _ in measured.stretch(tokens(), plan, round_trip=0.125):
        clock.now += 1.0
    assert (stats.link_seconds, stats.verify_seconds) == (0.125, 0.625)
    assert stats.seconds == 1.75
    assert stats.overhead_seconds == 1.0
    (round_,) = told
    assert (round_.plan, round_.tokens, round_.sent, round_.received) == (plan, 2, 0.0, 1.75)


def test_a_round_that_has_to_ask(clock: SimpleNamespace) -> None:
    told = list[Round]()
    measured = Meter(Stats(), told.append)
    measured.judged(answered(0.0, 1.0, 0.4), Outcome(asking=True))
    clock.now = 2.0
    measured.asked(1.5, Exchange(10, 20, 30, 40, 0.1))
    measured.settled(Outcome())
    measured.settled(Outcome())
    (round_,) = told
    assert (round_.asks, round_.received, round_.up_bytes, round_.down_bytes) == (1, 2.0, 11, 22)
    assert round_.server_seconds == 0.5


@pytest.mark.parametrize(
    ("method", "gamma", "window"),
    [("hybrid", 3, 1), ("coupled", 2, 3), ("hybrid", "auto", None), ("autoregressive", 1, None)],
)
async def test_the_parts_of_a_text_and_its_rounds(
    server: Serving, method: str, gamma: int | str, window: int | None
) -> None:
    told = list[Round]()
    async with connected(server, related_draft()) as client:
        stream = client.generate(
            PROMPT,
            method=method,
            gamma=gamma,
            window=window,
            max_tokens=60,
            seed=4,
            on_round=told.append,
        )
        async with stream:
            async for _ in stream:
                await asyncio.sleep(0)
    stats = stream.stats
    parts = (stats.draft_seconds, stats.link_seconds, stats.verify_seconds, stats.overhead_seconds)
    assert all(part >= -1e-9 for part in parts)
    assert sum(parts) == pytest.approx(stats.seconds, abs=1e-9)
    assert stats.link_seconds > 0
    assert sum(round_.tokens for round_ in told) == stats.tokens == 60
    assert sum(round_.up_bytes for round_ in told) == stats.up_bytes
    assert sum(round_.down_bytes for round_ in told) == stats.down_bytes
    assert sum(round_.accepted for round_ in told) == stats.accepted
    drafted = [round_ for round_ in told if round_.plan is not None and round_.plan.speculate]
    if method == "autoregressive":
        assert drafted == []
        return
    assert sum(round_.gamma for round_ in told) == stats.drafted
    assert sum(round_.asks for round_ in told) == stats.asks
    for round_ in drafted:
        assert round_.draft_begin is not None
        assert round_.draft_end is not None
        assert round_.draft_begin <= round_.draft_end
        if round_.sent is not None and round_.received is not None:
            assert round_.draft_end <= round_.sent <= round_.received
        if round_.stale:
            assert round_.settled is None
    by = {round_.settled for round_ in drafted}
    assert by <= ({"server", None} if method == "coupled" else {"server", "device", None})
    # Left alone, the control may let the server decode most of such a short text.
    assert gamma == "auto" or "server" in by


async def test_a_slow_network_is_the_links_time(server: Serving) -> None:
    faults = Faults("/verify", ["slow"] * 100)
    async with connected(server, related_draft(), faults=faults) as client:
        stream = client.generate(PROMPT, gamma=2, max_tokens=12)
        async with stream:
            async for _ in stream:
                pass
    stats = stream.stats
    assert stats.link_seconds >= 0.05 * stats.rounds


async def test_what_the_callback_raises_ends_the_text(server: Serving) -> None:
    def refuse(round_: Round) -> None:
        raise ZeroDivisionError

    async with connected(server, related_draft()) as client:
        stream = client.generate(PROMPT, gamma=2, max_tokens=12, on_round=refuse)
        with pytest.raises(ZeroDivisionError):
            async for _ in stream:
                pass


async def test_asks_that_find_the_session_lost(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[Round]()
    asked = 0
    real = Session.ask

    async def sometimes_lost(self: Session, message: Ask) -> tuple[Answer, Exchange]:
        nonlocal asked
        asked += 1
        if asked % 7 == 1:
            raise SessionLost("gone")
        return await real(self, message)

    monkeypatch.setattr(Session, "ask", sometimes_lost)
    async with connected(server, related_draft()) as client:
        stream = client.generate(
            PROMPT,
            method=Candidates(k=1, growth=1, m=4),
            gamma=3,
            max_tokens=80,
            seed=4,
            on_round=told.append,
        )
        async for _ in stream:
            pass
    stats = stream.stats
    assert stats.reopened > 0
    assert stats.asks > 0
    assert sum(round_.tokens for round_ in told) == stats.tokens
    assert sum(round_.asks for round_ in told) == stats.asks
    assert sum(round_.up_bytes for round_ in told) == stats.up_bytes
    assert sum(round_.down_bytes for round_ in told) == stats.down_bytes
