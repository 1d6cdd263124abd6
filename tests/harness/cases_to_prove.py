"""The cases that the proof by enumeration goes through: small laws, and every way to draft."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from harness.case import Case, Plan

from edge_sdk.decoding.greedy import Greedy
from edge_sdk.decoding.hybrid import Hybrid
from edge_sdk.draft.toy_text import toy_vocabulary
from edge_sdk.sampling import Sampling
from edge_sdk.vocab import TokenRole, Vocabulary

END = (TokenRole.END_OF_TEXT,)
EXACT = Hybrid(form="law", law_format="f64")
BOUND = 1e-9


def random_laws(seed: int, size: int, *, zeros: float = 0.0) -> np.ndarray:
    """Order-1 laws [size + 1, size]."""
    rng = np.random.default_rng(seed)
    laws = rng.dirichlet(np.full(size, 0.6), size=size + 1)
    laws[rng.random(laws.shape) < zeros] = 0.0
    laws[:, 0] += 0.05
    return laws / laws.sum(axis=1, keepdims=True)


def holed_laws(seed: int, size: int, shift: int = 0) -> np.ndarray:
    """Random laws with one zero a row, none of which is certain of an id."""
    laws = random_laws(seed, size)
    laws[np.arange(size + 1), (np.arange(size + 1) + shift) % size] = 0.0
    return laws / laws.sum(axis=1, keepdims=True)


def vocabulary(pieces: bytes, *, end: bool = False, unused: int = 0) -> Vocabulary:
    return toy_vocabulary(
        [bytes([piece]) for piece in pieces], controls=END if end else (), unused=unused
    )


def case(name: str, target: Vocabulary, draft: Vocabulary, **changes: Any) -> Case:
    base = Case(
        name=name,
        target_laws=random_laws(1, len(target)),
        draft_laws=random_laws(2, len(draft)),
        target_vocabulary=target,
        draft_vocabulary=draft,
        method=EXACT,
    )
    return replace(base, **changes)


ABC = vocabulary(b"abc")
ABCD = vocabulary(b"abcd")
ABX = vocabulary(b"axb")
ENDED = vocabulary(b"ab", end=True)

TINY = np.array([[1 - 2**-20, 2**-20, 0.0]] * 4)

ORDER_2 = np.random.default_rng(5).dirichlet([0.6] * 3, size=(4, 4))

CASES = [
    case("same vocabulary", ABC, ABC),
    case("V_O of one", ABCD, ABC),
    case("V_O on both sides", ABC, ABX),
    case("disjoint but one", ABC, vocabulary(b"xya")),
    case("sparse target", ABCD, ABC, target_laws=holed_laws(3, 4)),
    case("sparse draft", ABCD, ABC, draft_laws=holed_laws(4, 3)),
    case("order 2", ABC, ABX, target_laws=ORDER_2),
    case("order 2, re-opened", ABC, ABX, target_laws=ORDER_2, plan=Plan(reopen=frozenset({1, 2}))),
    case("order 2, pipelined", ABC, ABX, target_laws=ORDER_2, plan=Plan(gammas=(1,), ahead=1)),
    case("twins", toy_vocabulary([b"a", b"b", b"a"], controls=()), vocabulary(b"ab")),
    case("context full", ABC, ABX, tokens=5, context=3),
    case("context full, pipelined", ABC, ABX, tokens=5, context=4, plan=Plan(gammas=(1,), ahead=1)),
    case(
        "session lost with an answer",
        ABC,
        ABX,
        plan=Plan(gammas=(1,), forget=frozenset({1, 2})),
    ),
    case(
        "pipelined, gamma 2",
        vocabulary(b"ab"),
        vocabulary(b"ba"),
        plan=Plan(gammas=(2,), ahead=1),
        tokens=4,
    ),
    case("tiny q", ABC, ABC, draft_laws=TINY),
    case("tiny p", ABC, ABC, target_laws=TINY),
    case("end token in mid-block", ENDED, ENDED),
    case("end token of the target only", ENDED, vocabulary(b"ab")),
    case("padding rows", vocabulary(b"ab", unused=2), vocabulary(b"ab", unused=1)),
    case("gamma 1", ABC, ABX, plan=Plan(gammas=(1,))),
    case("gamma 3", vocabulary(b"ab"), vocabulary(b"ab"), plan=Plan(gammas=(3,)), tokens=4),
    case("early stop", ABC, ABX, plan=Plan(gammas=(3,), stop_at=0)),
    case("early stop, pipelined", ABC, ABX, plan=Plan(gammas=(2,), stop_at=0, ahead=1)),
    case("no drafts in between", ABC, ABX, plan=Plan(gammas=(1, 0, 2))),
    case("lost replies", ABC, ABX, plan=Plan(lose_replies=True)),
    case("re-opened", ABC, ABX, plan=Plan(reopen=frozenset({1, 2, 3}))),
    case(
        "pipelined",
        vocabulary(b"ab"),
        vocabulary(b"ba"),
        plan=Plan(gammas=(1,), ahead=1),
        tokens=3,
    ),
    case("pipelined, V_O", ABC, ABX, plan=Plan(gammas=(1,), ahead=1)),
    case("pipelined by two", ABC, ABX, plan=Plan(gammas=(1,), ahead=2)),
    case(
        "pipelined, stopping after all",
        ABC,
        ABX,
        plan=Plan(gammas=(1,), ahead=1, stop_after_ahead=True),
    ),
    case(
        "pipelined, lost replies",
        ABC,
        ABX,
        plan=Plan(gammas=(1,), ahead=1, lose_replies=True),
    ),
    case(
        "pipelined, at once after a rejection",
        ABC,
        ABX,
        plan=Plan(gammas=(1,), ahead=1, at_once=True),
    ),
    case(
        "pipelined by two, at once after a rejection",
        vocabulary(b"ab"),
        vocabulary(b"ba"),
        plan=Plan(gammas=(1,), ahead=2, at_once=True),
        tokens=4,
    ),
    case(
        "a block given up for a rejection",
        vocabulary(b"ab"),
        vocabulary(b"ba"),
        plan=Plan(gammas=(2,), ahead=1, interrupt=1, at_once=True),
        tokens=4,
    ),
    case(
        "a stale verdict gives no block up",
        vocabulary(b"ab"),
        vocabulary(b"ba"),
        plan=Plan(gammas=(2,), ahead=1, interrupt=1, at_once=True, stop_at=0),
        tokens=4,
    ),
    case(
        "a settled token known to a new session",
        ABC,
        ABX,
        plan=Plan(gammas=(1,), ahead=1, reopen=frozenset({2})),
    ),
    case(
        "a block given up at its begin",
        ABC,
        ABX,
        plan=Plan(gammas=(1,), ahead=1, interrupt=0),
    ),
    case(
        "a window lost and sent again",
        vocabulary(b"ab"),
        vocabulary(b"ba"),
        plan=Plan(gammas=(1,), ahead=2, reopen=frozenset({1, 2}), at_once=True),
        tokens=4,
    ),
    case(
        "a window lost with its answers",
        ABC,
        ABX,
        plan=Plan(gammas=(1,), ahead=1, forget=frozenset({0, 1, 2})),
    ),
    case("the server alone in between", ABC, ABX, plan=Plan(gammas=(1,), alone={0: 1, 1: 1})),
    case(
        "the server alone after blocks ahead",
        vocabulary(b"ab"),
        vocabulary(b"xb"),
        plan=Plan(gammas=(1,), ahead=1, alone={2: 1}),
        tokens=4,
    ),
    # A link that is down: the device draws on alone, and what it drew is verified later.
    case("offline", ABC, ABX, tokens=4, plan=Plan(gammas=(1,), offline={0: 2})),
    case("offline, same vocabulary", ABC, ABC, plan=Plan(gammas=(1,), offline={0: 2})),
    case("offline, longer blocks", ABC, ABX, tokens=4, plan=Plan(gammas=(2,), offline={0: 1})),
    case(
        "offline, several blocks",
        vocabulary(b"ab"),
        vocabulary(b"ab"),
        tokens=5,
        plan=Plan(gammas=(1,), offline={0: 3}),
    ),
    case(
        "offline, again and again",
        vocabulary(b"ab"),
        vocabulary(b"ax"),
        tokens=5,
        plan=Plan(gammas=(1,), offline={0: 1, 1: 2, 2: 1, 3: 1}),
    ),
    case(
        "offline, order 2",
        ABC,
        ABX,
        target_laws=ORDER_2,
        plan=Plan(gammas=(1,), offline={0: 2, 1: 1}),
    ),
    case(
        "offline, pipelined",
        vocabulary(b"ab"),
        vocabulary(b"ax"),
        tokens=5,
        plan=Plan(gammas=(1,), ahead=1, offline={0: 1, 1: 2}, at_once=True),
    ),
    case(
        "offline, interrupted",
        vocabulary(b"ab"),
        vocabulary(b"ax"),
        tokens=5,
        plan=Plan(gammas=(2,), ahead=1, offline={1: 1}, interrupt=1, at_once=True),
    ),
    case(
        "offline, lost replies", ABC, ABX, plan=Plan(gammas=(1,), offline={0: 2}, lose_replies=True)
    ),
    case(
        "offline, re-opened",
        ABC,
        ABX,
        plan=Plan(gammas=(1,), offline={0: 2}, reopen=frozenset({0, 1})),
    ),
    case(
        "offline, session lost with an answer",
        ABC,
        ABX,
        plan=Plan(gammas=(1,), offline={0: 2}, forget=frozenset({0, 1})),
    ),
    case("offline, end token", ENDED, ENDED, tokens=4, plan=Plan(gammas=(1,), offline={0: 2})),
    case("offline, context full", ABC, ABX, tokens=5, context=4, plan=Plan(offline={0: 3})),
    case(
        "offline, penalty",
        ABC,
        ABX,
        sampling=Sampling(repetition_penalty=1.7),
        plan=Plan(gammas=(1,), offline={0: 1}),
    ),
    case(
        "offline, the server alone in between",
        ABC,
        ABX,
        tokens=4,
        plan=Plan(gammas=(1,), offline={0: 1}, alone={1: 1}),
    ),
    case("temperature", ABCD, ABC, sampling=Sampling(temperature=0.6)),
    case("temperature 0", ABCD, ABC, sampling=Sampling(temperature=0.0)),
    case("top-k", ABCD, ABC, sampling=Sampling(top_k=2)),
    case("top-p", ABCD, ABC, sampling=Sampling(top_p=0.7)),
    case("min-p", ABCD, ABC, sampling=Sampling(min_p=0.3)),
    case("penalty", ABC, ABX, sampling=Sampling(repetition_penalty=1.7)),
    case(
        "every transform",
        ABCD,
        ABC,
        sampling=Sampling(repetition_penalty=1.3, temperature=1.4, top_k=3, top_p=0.9, min_p=0.05),
    ),
    case("greedy", ABCD, ABC, method=Greedy(), sampling=Sampling(temperature=0.0)),
    case(
        "greedy, penalty",
        ABCD,
        ABC,
        method=Greedy(),
        sampling=Sampling(temperature=0.0, repetition_penalty=1.5),
    ),
]

# Small enough for methods whose rejections take many coins.
SETTINGS = [
    case("V_O on both sides", ABC, ABX, tokens=2, plan=Plan(gammas=(1,))),
    case("same vocabulary", ABC, ABC, tokens=2),
    case("disjoint but one", ABC, vocabulary(b"xya"), tokens=2),
    case("sparse", ABC, ABX, tokens=2, target_laws=holed_laws(7, 3)),
    case("context full", ABC, ABX, tokens=4, context=3, plan=Plan(gammas=(1,))),
    case(
        "session lost with an answer",
        ABC,
        ABX,
        tokens=2,
        plan=Plan(gammas=(1,), forget=frozenset({1})),
    ),
    case("tiny p", ABC, ABC, tokens=2, target_laws=TINY, plan=Plan(gammas=(1,))),
    case("end in mid-block", ENDED, ENDED, tokens=3, plan=Plan(gammas=(2,))),
    case("early stop", ABC, ABX, tokens=2, plan=Plan(gammas=(2,), stop_at=0)),
    case("lost replies", ABC, ABX, tokens=2, plan=Plan(gammas=(1,), lose_replies=True)),
    case("re-opened", ABC, ABX, tokens=2, plan=Plan(gammas=(1,), reopen=frozenset({1, 2}))),
    case("pipelined", ABC, ABX, tokens=2, plan=Plan(gammas=(1,), ahead=1)),
    case("offline", ABC, ABX, plan=Plan(gammas=(1,), offline={0: 2})),
    case(
        "pipelined, stopping after all",
        ABC,
        ABX,
        tokens=2,
        plan=Plan(gammas=(1,), ahead=1, stop_after_ahead=True),
    ),
    case(
        "every transform",
        ABC,
        ABX,
        tokens=2,
        plan=Plan(gammas=(1,)),
        sampling=Sampling(repetition_penalty=1.3, temperature=1.4, top_p=0.95, min_p=0.05),
    ),
]
