"""Decode and prefill times of several drafts, taking turns in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from edge_sdk.draft.model import DraftModel

_BEGIN: Final = 64  # tokens held before the first step
_IN_A_ROW: Final = 4  # steps of a draft before the next one's turn


@dataclass(frozen=True, slots=True)
class Times:
    """Medians in seconds: a decode step, and a prompt in one pass."""

    decode: float
    prefill: float


def take_turns(
    drafts: Mapping[str, DraftModel],
    *,
    steps: int,
    prompt: int,
    prompts: int,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Times]:
    """Time every draft. What else the machine does then falls on all of them alike.

    Args:
        drafts: by name, open.
        steps: decode steps of each.
        prompt: tokens of a prompt.
        prompts: how many prompts.
        advance: called `steps / 4 + prompts` times.
    """
    decode: dict[str, list[float]] = {name: [] for name in drafts}
    prefill: dict[str, list[float]] = {name: [] for name in drafts}
    for draft in drafts.values():
        draft.reset()
        draft.append(_ids(draft, _BEGIN))
        draft.next_logits()
    for _ in range(-(-steps // _IN_A_ROW)):
        for name, draft in drafts.items():
            decode[name] += [_step(draft) for _ in range(_IN_A_ROW)]
        advance()
    for _ in range(prompts):
        for name, draft in drafts.items():
            draft.reset()
            draft.append(_ids(draft, prompt))
            begin = time.perf_counter()
            draft.next_logits()
            prefill[name].append(time.perf_counter() - begin)
        advance()
    for draft in drafts.values():
        draft.reset()
    return {name: Times(median(decode[name]), median(prefill[name])) for name in drafts}


def _step(draft: DraftModel) -> float:
    draft.append([draft.length % len(draft.vocabulary)])
    begin = time.perf_counter()
    draft.next_logits()
    return time.perf_counter() - begin


def _ids(draft: DraftModel, count: int) -> list[int]:
    return [(7919 * i + 13) % len(draft.vocabulary) for i in range(count)]
