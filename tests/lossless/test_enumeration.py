"""The proof that what is called lossless is: exact enumeration of every outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from harness.enumeration import Case, Plan, distance, enumerate_texts

from edge_sdk.decoding.baselines import Full, GreedyResample, TargetResample
from edge_sdk.decoding.candidates import CandidateBlock, Candidates, CandidatesDevice
from edge_sdk.decoding.consultant import Consultant
from edge_sdk.decoding.greedy import Greedy
from edge_sdk.decoding.hybrid import Hybrid, HybridDevice, HybridRejection
from edge_sdk.decoding.mentored import Mentored
from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Drafted, Method
from edge_sdk.decoding.registry import METHODS
from edge_sdk.decoding.uncertain import Uncertain
from edge_sdk.decoding.upload import Upload
from edge_sdk.draft.toy_text import toy_vocabulary
from edge_sdk.sampling import Sampling
from edge_sdk.vocab import TokenRole, Vocabulary
from edge_sdk.wire import decode, encode
from edge_sdk.wire.packing import pack_draft
from server_app.methods.base import Proposal
from server_app.methods.hybrid import HybridServer
from server_app.methods.registry import SERVER_HALVES
from server_app.methods.rows import Rows

END = (TokenRole.END_OF_TEXT,)
EXACT = Hybrid(form="law", law_format="f64")
COMPACT = Hybrid(form="head_tail", law_format="f64")
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


def case(name: str, target: Vocabulary, draft: Vocabulary, **changes: object) -> Case:
    base = Case(
        name=name,
        target_laws=random_laws(1, len(target)),
        draft_laws=random_laws(2, len(draft)),
        target_vocabulary=target,
        draft_vocabulary=draft,
        method=EXACT,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


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


OTHER_METHODS = [
    COMPACT,
    Candidates(k=1, m=1, law_format="f64"),
    Upload(),
    Full(law_format="f64"),
    Mentored(d=0.0),
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


def label(method: Method) -> str:
    options = ",".join(f"{name}={value}" for name, value in method.options().items())
    return f"{method.name}({options})"


@pytest.mark.parametrize("method", OTHER_METHODS, ids=label)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_every_lossless_method_has_the_target_law(setting: Case, method: Method) -> None:
    texts, reference, paths = enumerate_texts(replace(setting, method=method))
    print(f"{paths} paths")
    assert distance(texts, reference) < BOUND


def one_choice(first: np.ndarray, size: int) -> np.ndarray:
    """Laws that leave a choice at the first position, after the prompt, and none later."""
    laws = np.zeros((size + 1, size))
    laws[:, 1] = 1.0
    laws[1] = first
    return laws


LONG_LISTS = [
    case(
        "repetitions in a block, V_O",
        ABC,
        ABX,
        target_laws=one_choice(np.array([0.6, 0.0, 0.4]), 3),
        draft_laws=one_choice(np.array([0.3, 0.0, 0.7]), 3),
        tokens=2,
        plan=Plan(gammas=(1,)),
    ),
    case(
        "repetitions in a block, no V_O",
        ABC,
        ABC,
        target_laws=one_choice(np.array([0.7, 0.3, 0.0]), 3),
        draft_laws=one_choice(np.array([0.2, 0.8, 0.0]), 3),
        tokens=2,
        plan=Plan(gammas=(1,)),
    ),
    case(
        "the same, replies lost",
        ABC,
        ABC,
        target_laws=one_choice(np.array([0.7, 0.3, 0.0]), 3),
        draft_laws=one_choice(np.array([0.2, 0.8, 0.0]), 3),
        tokens=2,
        plan=Plan(gammas=(1,), lose_replies=True),
    ),
]


@pytest.mark.parametrize("setting", LONG_LISTS, ids=str)
@pytest.mark.parametrize(("k", "tokens"), [(3, 1), (2, 2), ("adaptive", 2)])
def test_candidates_with_long_lists(
    setting: Case, k: int | str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_app.methods.candidates._START", 2.0)
    monkeypatch.setattr("server_app.methods.candidates._LEAST", 1.0)
    monkeypatch.setattr("server_app.methods.candidates._MOST", 2.0)
    method = Candidates(k=k, m=2, growth=1, law_format="f64")
    texts, reference, paths = enumerate_texts(replace(setting, method=method, tokens=tokens))
    print(f"{paths} paths")
    assert distance(texts, reference) < BOUND


def test_candidates_without_their_repetitions_fail_the_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Distinct(CandidatesDevice):
        def settle(
            self, rejection: bytes, drafted: Drafted, *, position: int, block: int
        ) -> int | None:
            if block < 2:
                message = decode(CandidateBlock, rejection, limit=1 << 20)
                rejection = encode(replace(message, order=b""))
            return super().settle(rejection, drafted, position=position, block=block)

    monkeypatch.setattr("edge_sdk.decoding.candidates.CandidatesDevice", Distinct)
    method = Candidates(k=2, m=2, growth=1, law_format="f64")
    setting = replace(LONG_LISTS[0], method=method, tokens=1)
    texts, reference, _ = enumerate_texts(setting)
    assert distance(texts, reference) > 1e-3


def test_every_lossless_method_is_proven() -> None:
    enumerated = {case.method.name for case in CASES} | {method.name for method in OTHER_METHODS}
    # Proven by equality with each other: tests/edge_sdk/client/test_coupled.py.
    equal = {"coupled", "autoregressive"}
    lossless = {name for name, method in METHODS.items() if method.lossless}
    assert lossless <= enumerated | equal


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_every_setting_can_fail(setting: Case) -> None:
    texts, reference, _ = enumerate_texts(replace(setting, method=TargetResample()))
    assert distance(texts, reference) > BOUND


@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_uncertain_fails_the_proof_unless_it_always_asks(
    threshold: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_sdk.decoding.uncertain.REDRAWS", 1)
    monkeypatch.setattr("edge_sdk.decoding.uncertain._STEPS", 2)
    setting = case("unsure", ABC, ABX, tokens=2, method=Uncertain(u_th=threshold))
    texts, reference, _ = enumerate_texts(replace(setting, plan=Plan(gammas=(1,))))
    assert sum(texts.values()) == pytest.approx(1.0, abs=BOUND)
    assert (distance(texts, reference) < BOUND) == (threshold == 0)


@pytest.mark.parametrize(
    "method",
    [Consultant(epsilon=0.8), GreedyResample(), TargetResample(), Mentored(d=0.05)],
    ids=label,
)
def test_lossy_method_fails_the_proof(method: Method) -> None:
    setting = case("lossy", ABC, ABX, tokens=2, plan=Plan(gammas=(1,)))
    texts, reference, _ = enumerate_texts(replace(setting, method=method))
    assert sum(texts.values()) == pytest.approx(1.0, abs=BOUND)
    assert distance(texts, reference) > 1e-3


@pytest.mark.parametrize("case", CASES, ids=str)
def test_text_has_the_target_law(case: Case) -> None:
    texts, reference, _ = enumerate_texts(case)
    assert sum(texts.values()) == pytest.approx(1.0, abs=BOUND)
    assert distance(texts, reference) < BOUND


@pytest.mark.parametrize(("law_format", "bound"), [("f32", 1e-6), ("f16", 2e-3)])
def test_rounded_law_is_close_and_no_more(law_format: str, bound: float) -> None:
    rounded = case("rounded", ABCD, ABC, method=Hybrid(form="law", law_format=law_format))
    texts, reference, _ = enumerate_texts(rounded)
    assert 1e-12 < distance(texts, reference) < bound


class _DrawsFromP(HybridDevice):
    """Replaces a rejected token ~ p instead of ~ max(p - q, 0)."""

    def settle(
        self, rejection: bytes, drafted: Drafted, *, position: int, block: int
    ) -> int | None:
        assert drafted.law is not None
        return super().settle(
            rejection,
            replace(drafted, law=np.zeros_like(drafted.law)),
            position=position,
            block=block,
        )


class _ForgetsOther(HybridDevice):
    """Never takes the region V_O."""

    def settle(
        self, rejection: bytes, drafted: Drafted, *, position: int, block: int
    ) -> int | None:
        message = decode(HybridRejection, rejection, limit=1 << 20)
        changed = replace(message, other_mass=1e-12)
        return super().settle(encode(changed), drafted, position=position, block=block)


class _MisstatesQ(HybridDevice):
    """Says that every drafted token was certain."""

    def pack(self, drafted: Sequence[Drafted]) -> bytes:
        ranks = np.array([token.rank for token in drafted])
        return pack_draft(ranks, np.full(len(ranks), 1 << 24), size=len(self.context.target_ids))


@pytest.mark.parametrize("half", [_DrawsFromP, _ForgetsOther, _MisstatesQ])
def test_broken_device_half_fails_the_proof(half: type[HybridDevice]) -> None:
    class Broken(Hybrid):
        def device_half(self, context: DeviceContext) -> DeviceHalf:
            return half(context, self.law_format)

    broken = case("broken", ABC, ABX, method=Broken(form="law", law_format="f64"))
    texts, reference, _ = enumerate_texts(broken)
    assert distance(texts, reference) > 1e-3


class _AcceptsLikelier(HybridServer):
    """Keeps a token if and only if p >= q."""

    def accepts(self, rows: Rows, index: int, proposal: Proposal, *, position: int) -> bool:
        assert proposal.numerators is not None
        q = proposal.numerators[index] / (1 << 24)
        return rows.probability(index, proposal.tokens[index]) >= q


def test_broken_server_half_fails_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        SERVER_HALVES, "hybrid", lambda method, context: _AcceptsLikelier(context.coins, "f64")
    )
    texts, reference, _ = enumerate_texts(case("broken", ABC, ABX))
    assert distance(texts, reference) > 1e-3
