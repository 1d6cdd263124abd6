"""One step over many works: each gets what it would get alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from harness.serving import TABLE, VOCABULARY, toy_target

from edge_sdk.decoding.coins import PrfCoins, Side
from edge_sdk.decoding.noise import token_keys
from edge_sdk.errors import InvalidRequest, ServerFault, ServerUnavailable, SessionLost
from edge_sdk.sampling import Sampling
from edge_sdk.wire import Generation, Verdict, Verify
from server_app.engine.observer import Observer, StepReport
from server_app.engine.runner import Runner
from server_app.engine.session import Session
from server_app.engine.work import Prefill, VerifyWork, Work
from server_app.methods.base import Pair, Proposal
from server_app.methods.registry import server_half
from server_app.target.model import Chunk
from server_app.target.toy import ToyTarget

KEYS = token_keys(VOCABULARY)
PAIR = Pair("pair", np.arange(len(VOCABULARY)))


def session(prompt: Sequence[int], *, method: str = "greedy", owner: str = "me") -> Session:
    sampling = Sampling(temperature=0.0 if method == "greedy" else 1.0)
    generation = Generation(method, sampling, max_tokens=200, seed=7)
    coins = PrfCoins(seed=7, side=Side.SERVER)
    half = server_half(generation, KEYS, coins)
    return Session(prompt_ids=prompt, generation=generation, half=half, pair=PAIR, owner=owner)


def verify(held: Session, *drafted: int, more: bool = False, **rest: Any) -> VerifyWork:
    message = Verify(0, len(held.generated), more=more)
    numerators = None if held.generation.method in ("greedy", "coupled") else [2**23] * len(drafted)
    return VerifyWork(held, message, Proposal(list(drafted), numerators), **rest)


def until_done(runner: Runner, *works: Work, budget: int = 512) -> None:
    while left := [work for work in works if not work.done and work.error is None]:
        runner.step([(work, budget) for work in left])


def own_text(target: ToyTarget, prompt: Sequence[int], count: int) -> list[int]:
    ids = list(prompt)
    for _ in range(count):
        logits = TABLE.logits(ids).astype("float32")
        logits[VOCABULARY.masked_ids] = -np.inf
        ids.append(int(logits.argmax()))
    return ids[len(prompt) :]


class Poisoned(ToyTarget):
    """Raises on a pass that feeds a certain id."""

    poison = 77

    def forward(self, chunks: Sequence[Chunk]) -> list[torch.Tensor]:
        if any(self.poison in chunk.token_ids for chunk in chunks):
            raise RuntimeError("a kernel failed")
        return super().forward(chunks)


class Watching(Observer):
    def __init__(self) -> None:
        self.steps: list[StepReport] = []
        self.dropped: list[int] = []
        self.shared: list[int] = []
        self.faults = 0

    def step(self, report: StepReport) -> None:
        self.steps.append(report)

    def cache_evicted(self, tokens: int) -> None:
        self.dropped.append(tokens)

    def prefix_shared(self, tokens: int) -> None:
        self.shared.append(tokens)

    def fault(self) -> None:
        self.faults += 1


def test_a_step_is_one_pass_for_all() -> None:
    target, watching = toy_target(), Watching()
    runner = Runner(target, watching)
    held = [session([65 + n, 66, 67]) for n in range(8)]
    works = [verify(one, *own_text(target, one.prompt_ids, 3)) for one in held]
    runner.step([(work, 512) for work in works])
    assert target.passes == 1
    assert [work.verdict.accepted for work in works if work.verdict] == [3] * 8
    (report,) = watching.steps
    assert (report.verifies, report.tokens, report.rows) == (8, 8 * 6, 8 * 4)
    assert 0 < report.forward_seconds <= report.seconds


@pytest.mark.parametrize("method", ["greedy", "hybrid", "coupled", "candidates"])
def test_batches_of_any_composition_give_what_each_session_gets_alone(method: str) -> None:
    draw = random.Random(3)
    prompts = [[draw.randrange(32, 127) for _ in range(draw.randrange(1, 40))] for _ in range(6)]
    blocks = [
        [[draw.randrange(32, 127) for _ in range(draw.randrange(0, 4))] for _ in range(5)]
        for _ in prompts
    ]

    def verdicts(one: Session, runner: Runner, step: Callable[..., None]) -> list[Verdict | None]:
        out = []
        for drafted in blocks[prompts.index(list(one.prompt_ids))]:
            work = verify(one, *drafted)
            step(runner, work)
            out.append(work.verdict)
            if one.awaits_device:
                one.commit(65)
                one.awaits_device = False
        return out

    alone = [verdicts(session(p, method=method), Runner(toy_target()), until_done) for p in prompts]
    runner = Runner(toy_target())
    held = [session(p, method=method) for p in prompts]
    together: list[list[Verdict | None]] = [[] for _ in held]
    going: dict[int, VerifyWork] = {}
    while going or any(len(t) < 5 for t in together):
        for n, one in enumerate(held):
            if n not in going and len(together[n]) < 5 and draw.random() < 0.7:
                going[n] = verify(one, *blocks[n][len(together[n])])
        chosen = [n for n in going if draw.random() < 0.8]
        runner.step([(going[n], draw.choice([1, 3, 512])) for n in chosen])
        for n in chosen:
            if going[n].done:
                together[n].append(going.pop(n).verdict)
                if held[n].awaits_device:
                    held[n].commit(65)
                    held[n].awaits_device = False
    assert together == alone


def test_a_work_that_the_model_fails_on_fails_alone() -> None:
    target, watching = Poisoned.from_table(VOCABULARY, TABLE), Watching()
    runner = Runner(target, watching)
    held = [session([65 + n, 66]) for n in range(5)]
    works = [verify(one, 70) for one in held]
    bad = verify(session([65, Poisoned.poison]), 70)
    works.insert(2, bad)
    runner.step([(work, 512) for work in works])
    assert isinstance(bad.error, ServerFault)
    assert all(work.done and work.error is None for work in works if work is not bad)
    assert watching.faults == 1


def test_a_half_that_raises_fails_alone() -> None:
    class Broken(VerifyWork):
        def _accepted(self, *_: Any) -> int:
            raise ZeroDivisionError

    runner = Runner(toy_target())
    broken = session([65, 66])
    bad = Broken(broken, Verify(0, 0), Proposal([70]))
    good = verify(session([65, 66]), 70)
    runner.step([(bad, 512), (good, 512)])
    assert isinstance(bad.error, ServerFault)
    assert bad.spoiled
    assert good.done


def test_what_is_dropped_between_passes_changed_nothing() -> None:
    target = toy_target()
    runner = Runner(target)
    held = session(list(range(40, 100)))
    held.awaits_device = True
    message = Verify(0, 1, settled=90)
    work = VerifyWork(held, message, Proposal([70, 71]))
    runner.step([(work, 10)])
    assert work.begun
    assert not work.done
    assert held.generated == [90]
    runner.drop(work, ServerUnavailable("nobody waits"))
    assert held.generated == []
    assert held.awaits_device
    again = VerifyWork(held, Verify(0, 1, settled=80), Proposal([70]))
    until_done(runner, again)
    fresh = session(list(range(40, 100)))
    fresh.awaits_device = True
    alone = VerifyWork(fresh, Verify(0, 1, settled=80), Proposal([70]))
    until_done(Runner(toy_target()), alone)
    assert again.verdict == alone.verdict


def test_idle_sessions_give_their_memory_up_and_compute_it_again() -> None:
    target, watching = toy_target(cache_limit=64), Watching()
    runner = Runner(target, watching)
    held = [session([65 + n, *range(40, 70)]) for n in range(4)]
    texts: list[list[int]] = [[] for _ in held]
    for turn in range(3):
        for n, one in enumerate(held):
            work = verify(one, *own_text(target, [*one.prompt_ids, *one.generated], 2))
            until_done(runner, work)
            assert work.error is None, turn
            texts[n] = list(one.generated)
    assert len(watching.dropped) >= 8
    assert target.cache_used <= 64
    assert texts == [own_text(target, one.prompt_ids, 9) for one in held]


def test_a_batch_that_does_not_fit_is_done_in_parts() -> None:
    target = toy_target(cache_limit=64)
    runner = Runner(target)
    works = [verify(session([65 + n, *range(40, 70)]), 70) for n in range(4)]
    until_done(runner, *works)
    assert all(work.verdict is not None for work in works)


def test_what_can_never_fit_is_refused() -> None:
    runner = Runner(toy_target(cache_limit=16))
    work = verify(session(list(range(40, 80))), 70)
    until_done(runner, work)
    assert isinstance(work.error, ServerUnavailable)


def test_a_closed_session_fails_its_work_only() -> None:
    runner = Runner(toy_target())
    closed, other = session([65, 66]), session([65, 66])
    works = [verify(closed, 70), verify(other, 70)]
    runner.caches.close(closed)
    runner.step([(work, 512) for work in works])
    assert isinstance(works[0].error, SessionLost)
    assert works[1].done


def test_equal_prompts_of_one_owner_are_computed_once() -> None:
    target, watching = toy_target(), Watching()
    runner = Runner(target, watching)
    prompt = list(range(32, 122))
    until_done(runner, Prefill(session(prompt)))
    second, stranger = session(prompt), session(prompt, owner="stranger")
    for one in (second, stranger):
        until_done(runner, verify(one, 70))
    assert watching.shared == [80]
    alone = session(prompt)
    until_done(Runner(toy_target()), verify(alone, 70))
    assert second.generated == stranger.generated == alone.generated
    half = session([*prompt[:50], *range(32, 72)])
    until_done(runner, verify(half, 70))
    assert watching.shared == [80, 48]


def test_a_session_that_closes_leaves_its_beginning_to_the_others() -> None:
    target, watching = toy_target(), Watching()
    runner = Runner(target, watching)
    prompt = list(range(32, 122))
    held = [session(prompt) for _ in range(4)]
    until_done(runner, verify(held[0], 70))
    for before, one in itertools.pairwise(held):
        until_done(runner, verify(one, 70))
        runner.caches.close(before)
    assert watching.shared == [80] * 3
    runner.caches.close(held[-1])
    assert target.cache_used == 0


def test_declared_prompts_are_shared_with_everybody_and_stay() -> None:
    target, watching = toy_target(cache_limit=256), Watching()
    runner = Runner(target, watching)
    declared = session([*range(32, 96), 96], owner="")
    until_done(runner, Prefill(declared))
    runner.caches.pin(declared)
    for n in range(12):
        until_done(runner, verify(session([*range(32, 96), *[40 + n] * 20], owner=f"o{n}"), 70))
    assert watching.shared == [64] * 12
    assert declared.cached == 64


def test_closing_frees_everything() -> None:
    target = toy_target()
    runner = Runner(target)
    held = [session([65, *range(40, 80)]) for _ in range(5)]
    for one in held:
        until_done(runner, verify(one, 70))
    for one in held:
        runner.caches.close(one)
    assert target.cache_used == 0
    assert len(runner.caches) == 0


def test_finding_the_one_that_fails_takes_no_cache_of_the_others() -> None:
    """A pass fails, and its first half finds the cache full: the second half still stands."""

    class Full(Poisoned):
        def forward(self, chunks: Sequence[Chunk]) -> list[torch.Tensor]:
            if len(chunks) == 4:
                raise RuntimeError("a kernel failed before anything was reserved")
            return super().forward(chunks)

    target = Full.from_table(VOCABULARY, TABLE, cache_limit=45)
    runner = Runner(target)
    held = [session([65 + n, *range(40, 52)]) for n in range(4)]
    until_done(runner, *(Prefill(one) for one in held[2:]), budget=20)
    works = [verify(one, 70) for one in held]
    runner.step([(work, 512) for work in works])
    assert all(work.done or not isinstance(work.error, InvalidRequest) for work in works)
    assert works[2].done
    assert works[3].done
