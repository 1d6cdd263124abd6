"""Every outcome of every coin, through the real halves, codec and server.

`enumerate_texts` runs one generation again and again. Each run takes one path through the
choices; `Fork` replays a prefix of choices and goes on with the first outcome that has
weight, until every path was taken once. The weight of a path is the product of the
probabilities of its choices, so the sum over paths is the exact law of the text.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import torch
from harness.case import Case
from harness.device_run import one_run
from harness.fork import Fork, Pruned
from harness.reference import reference_texts

from edge_sdk.draft.toy import ToyDraft
from edge_sdk.vocab import Alignment
from server_app.target.toy import ToyTarget


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
            text = await one_run(case, fork, target, draft, alignment)
            texts[text] += fork.weight
        paths += 1
        assert paths <= limit, f"{case.name} has more than {limit} paths"
        if not fork.advance():
            assert fork.lost < 1e-10
            return texts, reference_texts(case, target), paths


def distance(one: Counter[tuple[int, ...]], other: Counter[tuple[int, ...]]) -> float:
    """Largest difference of a text's probability."""
    return max(abs(one[text] - other[text]) for text in {*one, *other})
