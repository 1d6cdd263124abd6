"""Sessions that verify the same blocks again and again, so that passes can be compared."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from edge_sdk.decoding.coins import PrfCoins, Side
from edge_sdk.decoding.grid import GRID
from edge_sdk.sampling import Sampling
from edge_sdk.wire import Generation, Verify
from server_app.engine.engine import Engine
from server_app.engine.observer import Observer, StepReport
from server_app.engine.session import Session
from server_app.engine.work import Prefill, VerifyWork
from server_app.methods.base import Pair, Proposal
from server_app.methods.registry import server_half
from server_app.target.model import Chunk, TargetModel

GAMMA: Final = 4
_ACCEPTANCE: Final = 0.65  # of a drafted token, about that of the default pair


class Steps(Observer):
    """Keeps what the engine reports."""

    def __init__(self) -> None:
        self.reports: list[StepReport] = []

    def step(self, report: StepReport) -> None:
        self.reports.append(report)


@dataclass(slots=True)
class Load:
    """Sessions of one engine, each with a block that continues its prompt.

    A verify is undone before the next one, so that every round computes the same rows.
    """

    engine: Engine
    steps: Steps
    sessions: Sequence[Session]
    blocks: Sequence[Proposal]

    async def one_by_one(self, count: int) -> float:
        """Seconds of a verify of each of the first `count` sessions, one after another."""
        return await self._timed(count, together=False)

    async def together(self, count: int) -> float:
        """The same, all at once."""
        return await self._timed(count, together=True)

    async def _timed(self, count: int, *, together: bool) -> float:
        works = []
        for session, block in zip(self.sessions[:count], self.blocks[:count], strict=True):
            session.truncate(0)
            await self.engine.trim(session, session.length - 1)
            works.append(VerifyWork(session, Verify(0, 0), block))
        begin = time.perf_counter()
        if together:
            await asyncio.gather(*(self.engine.run(work) for work in works))
        else:
            for work in works:
                await self.engine.run(work)
        return time.perf_counter() - begin


async def load(
    engine: Engine,
    steps: Steps,
    prompts: Sequence[Sequence[int]],
    *,
    keys: np.ndarray,
    temperature: float = 0.7,
) -> Load:
    """Sessions of `hybrid` with their prompts computed. Their blocks are the target's own
    likeliest tokens with some exchanged, and a q that accepts about two of three."""
    target = engine.target
    rng = np.random.default_rng(1)
    everything = np.setdiff1d(np.arange(len(target.vocabulary)), target.vocabulary.masked_ids)
    pair = Pair("bench", everything)
    sessions, blocks = [], []
    for number, prompt in enumerate(prompts):
        seed = 1000 + number
        generation = Generation("hybrid", Sampling(temperature=temperature), 256, seed)
        half = server_half(generation, keys, PrfCoins(seed=seed, side=Side.SERVER))
        session = Session(
            prompt_ids=prompt, generation=generation, half=half, pair=pair, owner=str(number)
        )
        await engine.run(Prefill(session))
        tokens = await engine.call(partial(_likeliest, target, session, GAMMA))
        numerators = []
        for index in range(GAMMA):
            if rng.random() < _ACCEPTANCE:
                numerators.append(1)
            else:
                tokens[index] = int(rng.choice(everything))
                numerators.append(GRID)
        sessions.append(session)
        blocks.append(Proposal(tokens, numerators))
    return Load(engine, steps, sessions, blocks)


def _likeliest(target: TargetModel, session: Session, count: int) -> list[int]:
    """The greedy continuation of a session's prompt (engine thread)."""
    sequence = session.cache(target)
    ids = session.tokens_from(sequence.length, session.length)
    tokens: list[int] = []
    masked = target.vocabulary.masked_ids
    for _ in range(count):
        (logits,) = target.forward([Chunk(sequence, ids, 1)])
        row = logits[0].float().numpy().copy()
        row[masked] = -np.inf
        tokens.append(int(row.argmax()))
        ids = tokens[-1:]
    session.trim_cache(target, session.length - 1)
    return tokens
