"""Every outcome of every coin, through the real halves, codec and server.

`enumerate_texts` runs one generation again and again. Each run takes one path through the
choices; `Fork` replays a prefix of choices and goes on with the first outcome that has
weight, until every path was taken once. The weight of a path is the product of the
probabilities of its choices, so the sum over paths is the exact law of the text.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edge_sdk.blocks import Block
from edge_sdk.decoding.coins import Key, Side
from edge_sdk.decoding.method import DeviceContext, Method
from edge_sdk.decoding.noise import token_keys
from edge_sdk.draft.follower import Follower
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.errors import SessionLost
from edge_sdk.rounds import Rounds
from edge_sdk.sampling import Sampling
from edge_sdk.vocab import Alignment, Vocabulary
from edge_sdk.wire import (
    PROTOCOL_VERSION,
    Answer,
    Ask,
    Finish,
    Generate,
    Generation,
    Open,
    Prompt,
    RegisterPair,
    Verdict,
    Verify,
    decode,
    encode,
)
from edge_sdk.wire.limits import MAX_REPLY_BODY, MAX_ROUND_BODY
from server_app.engine.engine import Engine
from server_app.engine.work import Work
from server_app.host import Host
from server_app.target.model import Chunk
from server_app.target.toy import ToyTarget

SEED = 11


class Pruned(BaseException):
    """The path has less weight than matters."""


class Fork:
    """Choices of one run.

    Rejection sampling may go on for ever with ever smaller probability, so a path is given
    up when its weight falls below `least`; `lost` sums the weights that were given up.
    """

    def __init__(self, least: float = 1e-14) -> None:
        self._least = least
        self.lost = 0.0
        self._taken: list[tuple[int, int]] = []  # (index of the outcome, how many there are)
        self._depth = 0
        self._known: dict[tuple[Side, Key], tuple[int, bytes]] = {}
        self.weight = 1.0

    def begin(self) -> None:
        self._depth = 0
        self._known = {}
        self.weight = 1.0

    def advance(self) -> bool:
        """Step to the next path; False after the last."""
        while self._taken:
            index, count = self._taken.pop()
            if index + 1 < count:
                self._taken.append((index + 1, count))
                return True
        return False

    def choose(self, side: Side, key: Key, weights: NDArray[np.float64]) -> int:
        """An outcome. A key that is asked again gives the same one, and must ask the same."""
        signature = weights.tobytes()
        if (side, key) in self._known:
            outcome, before = self._known[side, key]
            assert before == signature, f"{side} {key} decides two different things"
            return outcome
        possible = np.flatnonzero(weights > 0)
        if self._depth == len(self._taken):
            self._taken.append((0, len(possible)))
        index, count = self._taken[self._depth]
        assert count == len(possible), "a run is not a function of its choices"
        self._depth += 1
        outcome = int(possible[index])
        self.weight *= float(weights[outcome]) / float(weights.sum())
        self._known[side, key] = (outcome, signature)
        if self.weight < self._least:
            self.lost += self.weight
            raise Pruned
        return outcome


class ForkCoins:
    """`Coins` that take every outcome in turn."""

    def __init__(self, fork: Fork, side: Side) -> None:
        self._fork = fork
        self._side = side

    def bernoulli(self, key: Key, probability: float) -> bool:
        p = min(1.0, max(0.0, probability))
        return bool(self._fork.choose(self._side, key, np.array([1.0 - p, p])))

    def categorical(self, key: Key, weights: NDArray[np.float64]) -> int:
        return self._fork.choose(self._side, key, np.asarray(weights, dtype=np.float64))

    def categoricals(self, keys: Iterable[Key], weights: NDArray[np.float64]) -> Iterator[int]:
        for key in keys:
            yield self.categorical(key, weights)


class InlineEngine(Engine):
    """The engine without its thread: works are carried out where they are handed in."""

    async def run(self, work: Work) -> None:
        while not work.done:
            self.runner.step([(work, 512)])
            if work.error is not None:
                raise work.error

    async def call(self, action: Callable[[], Any]) -> Any:
        return action()

    def post(self, action: Callable[[], Any]) -> None:
        action()


@dataclass(frozen=True)
class Plan:
    """How the device goes about it.

    Attributes:
        gammas: draft length of each round in turn; the last one is repeated.
        ahead: blocks sent before the answer to the first (`more`); 0 sends one at a time.
        stop_after_ahead: say `more`, but then send an empty block instead of drafting.
        lose_replies: every request is sent twice; the first reply is thrown away.
        reopen: the server loses the session before it gets the verify of these rounds, and
            with it what is in flight.
        forget: it loses the session after it answered these rounds, and the answer is lost.
        at_once: after a rejection the next block goes out before the verdicts of the stale ones
            are read.
        interrupt: a rejection is seen while the next block is being drafted, after this many of
            its tokens; the block is given up.
        alone: before these rounds, if nothing is in flight, the server decodes so many tokens.
        stop_at: draft no further once a token of this rank is in the block.
        reopen_asks: it loses the session before it gets these requests for more.
        offline: after these rounds were sent, the link is down while the device draws so many
            tokens alone.
    """

    gammas: Sequence[int] = (2,)
    ahead: int = 0
    stop_after_ahead: bool = False
    lose_replies: bool = False
    reopen: frozenset[int] = frozenset()
    forget: frozenset[int] = frozenset()
    reopen_asks: frozenset[int] = frozenset()
    stop_at: int | None = None
    at_once: bool = False
    interrupt: int | None = None
    alone: Mapping[int, int] = field(default_factory=dict)
    offline: Mapping[int, int] = field(default_factory=dict)


@dataclass
class Case:
    """One law to check."""

    name: str
    target_laws: Any
    draft_laws: Any
    target_vocabulary: Vocabulary
    draft_vocabulary: Vocabulary
    method: Method
    sampling: Sampling = field(default_factory=Sampling)
    plan: Plan = field(default_factory=Plan)
    tokens: int = 3
    prompt: tuple[int, ...] = (0,)
    context: int = 4096

    def __str__(self) -> str:
        return self.name


def reference_law(
    logits: NDArray[np.float64], sampling: Sampling, masked: Sequence[int], seen: Sequence[int]
) -> NDArray[np.float64]:
    """The target's law written down once more, from design and not from the code."""
    z = np.array(logits, dtype=np.float64)
    for token in set(seen):
        z[token] = (
            z[token] / sampling.repetition_penalty
            if z[token] > 0
            else z[token] * sampling.repetition_penalty
        )
    z[list(masked)] = -np.inf
    if sampling.temperature == 0:
        return np.eye(len(z))[int(np.argmax(z))]
    z = z / sampling.temperature
    if sampling.top_k:
        z[z < np.sort(z)[-min(sampling.top_k, len(z))]] = -np.inf
    p = np.exp(z - z.max())
    p /= p.sum()
    if sampling.top_p < 1:
        order = np.argsort(-p, kind="stable")
        total = 0.0
        kept = np.zeros_like(p)
        for token in order:
            kept[token] = p[token]
            total += p[token]
            if total >= sampling.top_p:
                break
        p = kept / kept.sum()
    p[p < sampling.min_p * p.max()] = 0.0
    return p / p.sum()


def reference_texts(case: Case, target: ToyTarget) -> Counter[tuple[int, ...]]:
    """Exact law of the target's own texts."""
    vocabulary = target.vocabulary
    masked = vocabulary.masked_ids.tolist()
    done: Counter[tuple[int, ...]] = Counter()
    open_texts = {(): 1.0}
    for _ in range(min(case.tokens, case.context - len(case.prompt))):
        longer: dict[tuple[int, ...], float] = {}
        for text, weight in open_texts.items():
            ids = [*case.prompt, *text]
            sequence = target.new_sequence()
            (logits,) = target.forward([Chunk(sequence, ids, 1)])
            target.release(sequence)
            law = reference_law(logits[0].numpy(), case.sampling, masked, ids)
            for token in np.flatnonzero(law):
                grown = (*text, int(token))
                value = weight * float(law[token])
                if int(token) in vocabulary.end_ids:
                    done[grown] += value
                else:
                    longer[grown] = longer.get(grown, 0.0) + value
        open_texts = longer
    done.update(open_texts)
    return done


def enumerate_texts(
    case: Case, limit: int = 400_000
) -> tuple[Counter[tuple[int, ...]], Counter[tuple[int, ...]], int]:
    """Law of the texts that device and server write together, the target's own, and the
    number of paths."""
    target = ToyTarget.from_laws(
        case.target_vocabulary, case.target_laws, dtype=torch.float64, context=case.context
    )
    return asyncio.run(_enumerate(case, target, limit))


async def _enumerate(
    case: Case, target: ToyTarget, limit: int
) -> tuple[Counter[tuple[int, ...]], Counter[tuple[int, ...]], int]:
    fork = Fork()
    texts: Counter[tuple[int, ...]] = Counter()
    paths = 0
    alignment = Alignment.between(
        target=case.target_vocabulary, draft=case.draft_vocabulary, minimum=1
    )
    draft = ToyDraft.from_laws(case.draft_vocabulary, case.draft_laws)
    while True:
        fork.begin()
        with contextlib.suppress(Pruned):
            text = await _one_run(case, fork, target, draft, alignment)
            texts[text] += fork.weight
        paths += 1
        assert paths <= limit, f"{case.name} has more than {limit} paths"
        if not fork.advance():
            assert fork.lost < 1e-10
            return texts, reference_texts(case, target), paths


async def _one_run(
    case: Case, fork: Fork, target: ToyTarget, draft: ToyDraft, alignment: Alignment
) -> tuple[int, ...]:
    plan = case.plan
    host = _host(fork, target, alignment)
    generation = Generation(
        method=case.method.name,
        sampling=case.sampling,
        max_tokens=case.tokens,
        seed=SEED,
        options=case.method.options(),
    )
    follower = Follower(draft, alignment, case.target_vocabulary)
    rank = alignment.rank_of_target[list(case.prompt)]
    follower.begin([int(alignment.draft_ids[r]) if r >= 0 else 0 for r in rank])
    half = case.method.device_half(
        DeviceContext(
            target_ids=alignment.target_ids,
            target_size=len(case.target_vocabulary),
            sampling=case.sampling,
            coins=ForkCoins(fork, Side.DEVICE),
            seed=SEED,
            token_keys=lambda: token_keys(case.target_vocabulary, alignment.target_ids),
        )
    )
    rounds = Rounds(
        half=half,
        follower=follower,
        alignment=alignment,
        target=case.target_vocabulary,
        max_tokens=case.tokens,
        keeps_sure=case.method.keeps_sure,
    )
    sessions = 0

    async def open_session(generated: Sequence[int], next_sequence: int) -> None:
        nonlocal sessions
        sessions += 1
        message = Open(
            PROTOCOL_VERSION,
            alignment.pair_id,
            Prompt(ids=case.prompt),
            generation,
            tuple(generated),
            next_sequence,
        )
        body = encode(message)
        await host.open("me", str(sessions), decode(Open, body, limit=1 << 20), body)

    async def send(block: Block) -> Verdict:
        body = encode(block.verify)
        for _ in range(2 if plan.lose_replies else 1):
            message = decode(Verify, body, limit=MAX_ROUND_BODY)
            reply, _ = await host.verify("me", str(sessions), message, body)
        return decode(Verdict, reply, limit=MAX_REPLY_BODY)

    async def ask(message: Ask) -> Answer:
        body = encode(message)
        for _ in range(2 if plan.lose_replies else 1):
            reply = await host.ask("me", str(sessions), message, body)
        return decode(Answer, reply, limit=MAX_REPLY_BODY)

    await open_session((), 0)
    rounds.room = case.context - len(case.prompt)

    async def deliver(block: Block) -> Verdict | None:
        """The verdict; None if it, or the session, was lost."""
        if number in plan.forget:
            with contextlib.suppress(SessionLost):
                await send(block)
        if number in plan.reopen | plan.forget:
            await host.close("me", str(sessions))
        try:
            verdict = await send(block)
        except SessionLost:
            return None
        assert number not in plan.reopen | plan.forget, "a closed session answered"
        return verdict

    async def again() -> list[Verdict | None]:
        """Open the session once more and send again what may still be accepted."""
        blocks = rounds.renewed()
        first = blocks[0].verify.sequence if blocks else rounds.next_sequence
        await open_session(rounds.generated, first)
        return [await send(block) for block in blocks]

    async def stretch(count: int) -> Finish:
        settled = rounds.unsent
        message = Generate(len(rounds.generated), count, settled)
        stream = host.generate("me", str(sessions), message)
        finish = Finish.NONE
        async with contextlib.aclosing(stream) as tokens:
            async for token in tokens:
                assert token.token is not None
                finish = rounds.streamed(token.token).finish
                assert finish == token.finish
        return finish

    # The server answers at once; the device reads the answers one by one, as late as it may.
    unread: list[Verdict | None] = []
    number = asked = 0
    stretches = dict(plan.alone)
    finish = Finish.NONE
    while finish == Finish.NONE:
        if not unread and (sure := rounds.keep_sure()) is not None:
            finish = sure.finish
            continue
        if not unread and number in stretches:
            finish = await stretch(stretches.pop(number))
            continue
        if (not unread or plan.ahead or plan.at_once) and rounds.may_follow:
            known = unread[0] if unread else None
            oldest = rounds.oldest
            refused = known is not None and oldest is not None and oldest.refused_by(known)
            give_up = plan.interrupt if refused else None
            gamma = plan.gammas[min(number, len(plan.gammas) - 1)]
            if unread and plan.stop_after_ahead:
                gamma = 0
            asks = itertools.count()
            wanted = rounds.live <= plan.ahead and (plan.at_once or not unread or rounds.live)
            block = None
            if wanted and rounds.left > 0:
                block = rounds.next_block(
                    gamma,
                    more=rounds.live < plan.ahead,
                    enough=lambda drafted: drafted[-1].rank == plan.stop_at,
                    cancelled=lambda at=give_up, asks=asks: at is not None and next(asks) >= at,
                )
            if block is not None:
                verdict = await deliver(block)
                for _ in range(plan.offline.get(number, 0)):
                    rounds.draw_ahead()
                number += 1
                unread.append(verdict)
                continue
        verdict = unread.pop(0)
        if verdict is None:
            unread = await again()
            continue
        outcome = rounds.receive(verdict)
        while outcome.asking:
            asked += 1
            request = rounds.ask()
            if asked not in plan.reopen_asks:
                outcome = rounds.answer(await ask(request))
                continue
            await host.close("me", str(sessions))
            rest = rounds.rejected_again()
            await open_session(rounds.generated, rest.verify.sequence)
            unread.clear()
            outcome = rounds.receive(await send(rest))
        finish = outcome.finish
    await host.close("me", str(sessions))
    return tuple(rounds.generated)


def _host(fork: Fork, target: ToyTarget, alignment: Alignment) -> Host:
    host = Host(
        InlineEngine(target),
        coins=lambda seed: ForkCoins(fork, Side.SERVER),
    )
    host.register_pair(
        RegisterPair(alignment.target_fingerprint, alignment.bitmap),
    )
    return host


def distance(one: Counter[tuple[int, ...]], other: Counter[tuple[int, ...]]) -> float:
    """Largest difference of a text's probability."""
    return max(abs(one[text] - other[text]) for text in {*one, *other})
