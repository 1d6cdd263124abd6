"""The engine's thread: works of many coroutines share its steps, and none of them hangs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import torch
from harness.serving import TABLE, VOCABULARY, toy_target, until

from edge_sdk.decoding.coins import PrfCoins, Side
from edge_sdk.decoding.noise import token_keys
from edge_sdk.errors import ServerFault, ServerUnavailable
from edge_sdk.sampling import Sampling
from edge_sdk.wire import Generation, Verify
from server_app.engine.engine import Abandoned, Engine
from server_app.engine.observer import Observer, StepReport
from server_app.engine.scheduler import Policy
from server_app.engine.session import Session
from server_app.engine.work import Prefill, VerifyWork, Work
from server_app.methods.base import Proposal
from server_app.methods.registry import server_half
from server_app.target.model import Chunk
from server_app.target.toy import ToyTarget

KEYS = token_keys(VOCABULARY)
SLOW = 0.03


class Steps(Observer):
    def __init__(self) -> None:
        self.reports: list[StepReport] = []

    def step(self, report: StepReport) -> None:
        self.reports.append(report)


@contextlib.asynccontextmanager
async def running(
    target: ToyTarget | None = None, **policy: Any
) -> AsyncIterator[tuple[Engine, Steps]]:
    steps = Steps()
    engine = Engine(target or toy_target(), Policy(**policy), observer=steps)
    engine.start()
    try:
        yield engine, steps
    finally:
        await asyncio.to_thread(engine.stop)


def session(length: int = 3, *, owner: str = "me") -> Session:
    generation = Generation("greedy", Sampling(temperature=0), max_tokens=200, seed=1)
    half = server_half(generation, KEYS, PrfCoins(seed=1, side=Side.SERVER))
    ids = [40 + n % 60 for n in range(length)]
    return Session(prompt_ids=ids, generation=generation, half=half, pair=None, owner=owner)


def step_of(held: Session, **rest: Any) -> VerifyWork:
    return VerifyWork(held, Verify(0, len(held.generated)), Proposal([]), **rest)


async def test_what_waits_shares_a_pass() -> None:
    async with running(toy_target(seconds_per_pass=SLOW)) as (engine, steps):
        works = [step_of(session()) for _ in range(16)]
        await asyncio.gather(*(engine.run(work) for work in works))
        assert all(work.done for work in works)
    # The first begins alone, perhaps with some of the others; the rest wait for it together.
    assert len(steps.reports) <= 3
    assert sum(report.verifies for report in steps.reports) == 16
    assert sum(len(report.waits) for report in steps.reports) == 16


async def test_a_long_prompt_does_not_hold_others_up() -> None:
    target = toy_target(seconds_per_pass=0.005)
    async with running(target, batch_tokens=64, prefill_chunk=32) as (engine, steps):
        long = asyncio.create_task(engine.run(Prefill(session(1500))))
        await until(lambda: len(steps.reports) > 1)
        quick = session()
        for _ in range(5):
            before = len(steps.reports)
            await engine.run(step_of(quick))
            assert len(steps.reports) - before <= 3
        assert not long.done()
        await long
    assert max(report.tokens for report in steps.reports) <= 64


async def test_a_work_that_nobody_wants_costs_nothing() -> None:
    target = toy_target(seconds_per_pass=SLOW)
    async with running(target) as (engine, _):
        first = asyncio.create_task(engine.run(step_of(session())))
        await until(lambda: engine.waiting > 0)
        left = session()
        with pytest.raises(Abandoned):
            await engine.run(step_of(left, wanted=lambda: False))
        await first
        assert left.cached == 0
        assert left.generated == []
        wanted = True
        long = Prefill(session(4000), wanted=lambda: wanted)
        task = asyncio.create_task(engine.run(long))
        await until(lambda: long.session.cached > 0)
        wanted = False
        with pytest.raises(Abandoned):
            await task
        assert 0 < long.session.cached < 3999


async def test_too_many_are_refused_and_told_when_to_come_back() -> None:
    async with running(toy_target(seconds_per_pass=SLOW), queue=4) as (engine, _):
        tasks = [asyncio.create_task(engine.run(step_of(session()))) for _ in range(20)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [result for result in results if isinstance(result, ServerUnavailable)]
    assert 10 <= len(refused) <= 16
    assert all(error.retry_after for error in refused)
    assert results.count(None) == 20 - len(refused)


async def test_nobody_waits_longer_than_promised() -> None:
    target = toy_target(seconds_per_pass=0.05)
    async with running(target, batch_tokens=8, queue_seconds=0.12) as (engine, _):
        tasks = [asyncio.create_task(engine.run(step_of(session(8)))) for _ in range(12)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
    late = [result for result in results if result is not None]
    assert 0 < len(late) < 12
    assert all(isinstance(error, ServerUnavailable) for error in late)
    assert all("overloaded" in str(error) for error in late)


async def test_a_verify_takes_the_place_of_the_prefill_before_it() -> None:
    target = toy_target(seconds_per_pass=0.005)
    async with running(target, batch_tokens=64, prefill_chunk=64) as (engine, steps):
        held = session(300)
        prefill = asyncio.create_task(engine.run(Prefill(held)))
        await until(lambda: held.cached > 0)
        await engine.run(step_of(held))
        with pytest.raises(Abandoned):
            await prefill
    assert sum(report.tokens for report in steps.reports) == 300


async def test_a_model_that_fails_ends_one_request_only() -> None:
    class Failing(ToyTarget):
        def forward(self, chunks: Sequence[Chunk]) -> list[torch.Tensor]:
            if any(len(chunk.token_ids) == 13 for chunk in chunks):
                raise RuntimeError("no")
            return super().forward(chunks)

    target = Failing.from_table(VOCABULARY, TABLE, seconds_per_pass=SLOW)
    async with running(target) as (engine, _):
        works: list[Work] = [step_of(session(length)) for length in (3, 13, 4, 5)]
        results = await asyncio.gather(
            *(engine.run(work) for work in works), return_exceptions=True
        )
        assert [type(result) for result in results].count(ServerFault) == 1
        assert isinstance(results[1], ServerFault)
        await engine.run(step_of(session()))
        assert engine.alive


async def test_stopping_tells_everybody() -> None:
    target = toy_target(seconds_per_pass=SLOW)
    async with running(target) as (engine, _):
        tasks = [asyncio.create_task(engine.run(step_of(session()))) for _ in range(3)]
        await until(lambda: target.passes > 0 or engine.waiting > 1)
        tasks += [asyncio.create_task(engine.run(step_of(session()))) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.to_thread(engine.stop)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(result is None or isinstance(result, ServerUnavailable) for result in results)
        with pytest.raises(ServerUnavailable, match="going down"):
            await engine.run(step_of(session()))
        with pytest.raises(ServerUnavailable, match="going down"):
            await engine.call(lambda: 1)
        engine.post(lambda: 1)


async def test_actions_are_answered_and_their_errors_told() -> None:
    async with running() as (engine, _):
        assert await engine.call(lambda: 7) == 7
        with pytest.raises(ServerFault):
            await engine.call(lambda: 1 // 0)
        assert await engine.call(lambda: 8) == 8
