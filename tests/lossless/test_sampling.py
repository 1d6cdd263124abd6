"""The smoke beside the enumeration: real coins, many seeds, texts counted.

100,000 texts see a total variation of about 0.01; the proof is `test_enumeration`.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from harness.case import Case
from harness.inline_engine import InlineEngine
from harness.reference import reference_texts

from edge_sdk.decoding.coins import Coins, Key, PrfCoins, Purpose, Side
from edge_sdk.decoding.hybrid import Hybrid
from edge_sdk.decoding.method import DeviceContext
from edge_sdk.decoding.noise import token_keys
from edge_sdk.draft.follower import Follower
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.draft.toy_text import toy_vocabulary
from edge_sdk.sampling import Sampling
from edge_sdk.text.rounds import Rounds
from edge_sdk.vocab import Alignment, TokenRole
from edge_sdk.wire import (
    PROTOCOL_VERSION,
    Answer,
    Finish,
    Generation,
    Open,
    Prompt,
    RegisterPair,
    Verdict,
    Verify,
    decode,
    encode,
)
from server_app.host import Host
from server_app.target.toy import ToyTarget

TEXTS = 3000
END = (TokenRole.END_OF_TEXT,)


def laws(seed: int, size: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(size, 0.8), size=size + 1)


def case(name: str, target: bytes, draft: bytes, **changes: Any) -> Case:
    ours = toy_vocabulary([bytes([piece]) for piece in target], controls=END)
    theirs = toy_vocabulary([bytes([piece]) for piece in draft], controls=END)
    base = Case(
        name=name,
        target_laws=laws(1, len(ours)),
        draft_laws=laws(2, len(theirs)),
        target_vocabulary=ours,
        draft_vocabulary=theirs,
        method=Hybrid(),
        tokens=3,
    )
    return replace(base, **changes)


CASES = [
    case("one vocabulary", b"abcdefg", b"abcdefg"),
    case("two vocabularies", b"abcdefg", b"gxbyd"),
    case("whole laws", b"abcdef", b"fbxyd", method=Hybrid(form="law")),
    case("hot", b"abcd", b"bcx", sampling=Sampling(temperature=1.7)),
    case("truncated", b"abcdef", b"fedx", sampling=Sampling(temperature=0.8, top_k=4, top_p=0.9)),
]


async def texts(
    case: Case, device_coins: Callable[[int], Coins], count: int = TEXTS
) -> Counter[tuple[int, ...]]:
    """Texts of seeds 0, 1, ... through both halves, the codec and the host."""
    target = ToyTarget.from_laws(case.target_vocabulary, case.target_laws)
    host = Host(InlineEngine(target))
    pair = Alignment.between(target=case.target_vocabulary, draft=case.draft_vocabulary, minimum=1)
    host.register_pair(RegisterPair(pair.target_fingerprint, pair.bitmap))
    draft = ToyDraft.from_laws(case.draft_vocabulary, case.draft_laws)
    follower = Follower(draft, pair, case.target_vocabulary)
    begin = [int(pair.draft_ids[rank]) for rank in pair.rank_of_target[[1]] if rank >= 0]
    keys = token_keys(case.target_vocabulary, pair.target_ids)
    found: Counter[tuple[int, ...]] = Counter()
    for seed in range(count):
        generation = Generation(
            case.method.name, case.sampling, case.tokens, seed, case.method.options()
        )
        message = Open(PROTOCOL_VERSION, pair.pair_id, Prompt(ids=(1,)), generation)
        await host.open("me", str(seed), message, encode(message))
        context = DeviceContext(
            target_ids=pair.target_ids,
            target_size=len(case.target_vocabulary),
            sampling=case.sampling,
            coins=device_coins(seed),
            seed=seed,
            token_keys=lambda: keys,
        )
        follower.begin(begin)
        rounds = Rounds(
            half=case.method.device_half(context),
            follower=follower,
            alignment=pair,
            target=case.target_vocabulary,
            max_tokens=case.tokens,
        )
        finish = Finish.NONE
        while finish == Finish.NONE:
            block = rounds.next_block(2)
            assert block is not None
            body = encode(block.verify)
            reply, _ = await host.verify("me", str(seed), decode(Verify, body, limit=9999), body)
            outcome = rounds.receive(decode(Verdict, reply, limit=99999))
            while outcome.asking:
                ask = rounds.ask()
                reply = await host.ask("me", str(seed), ask, encode(ask))
                outcome = rounds.answer(decode(Answer, reply, limit=99999))
            finish = outcome.finish
        await host.close("me", str(seed))
        found[tuple(rounds.generated)] += 1
    return found


def deviation(found: Counter[tuple[int, ...]], law: Counter[tuple[int, ...]]) -> float:
    """Standard deviations of chi-square above its mean, cells pooled to 10 expected."""
    total = sum(found.values())
    cells: list[tuple[float, int]] = []
    expected, seen = 0.0, 0
    assert set(found) <= {text for text, weight in law.items() if weight > 0}
    for text, weight in sorted(law.items(), key=lambda item: item[1]):
        expected += total * weight
        seen += found[text]
        if expected >= 10:
            cells.append((expected, seen))
            expected, seen = 0.0, 0
    if expected:
        last = cells.pop()
        cells.append((last[0] + expected, last[1] + seen))
    assert len(cells) > 10
    statistic = sum((seen - expected) ** 2 / expected for expected, seen in cells)
    return math.sqrt(2 * statistic) - math.sqrt(2 * (len(cells) - 1) - 1)


def device_coins(seed: int) -> Coins:
    return PrfCoins(seed=seed, side=Side.DEVICE)


def law_of(case: Case) -> Counter[tuple[int, ...]]:
    target = ToyTarget.from_laws(case.target_vocabulary, case.target_laws)
    return reference_texts(replace(case, prompt=(1,)), target)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_texts_come_as_often_as_the_target_writes_them(case: Case) -> None:
    found = asyncio.run(texts(case, device_coins))
    assert deviation(found, law_of(case)) < 3.5


def test_shared_coins_are_found_out() -> None:
    """One uniform for both sides biases the text, and this test can see it."""
    # In one reply: a device whose coins never change would ask for ever more tail tokens.
    one = replace(CASES[0], method=Hybrid(form="law"))
    shared = asyncio.run(texts(one, _OneUniform, 1500))
    assert deviation(shared, law_of(one)) > 8


class _OneUniform(PrfCoins):
    """Decides everything at a position by the server's coin for accepting there."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed=seed, side=Side.SERVER)

    def integer(self, key: Key) -> int:
        return super().integer(Key(key.position, Purpose.ACCEPT))
