"""The proof that what is called lossless is: exact enumeration of every outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from harness.enumeration import Case, Plan, distance, enumerate_texts

from edge_sdk.decoding.greedy import Greedy
from edge_sdk.decoding.hybrid import Hybrid, HybridDevice, HybridRejection
from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Drafted
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
EXACT = Hybrid(law_format="f64")
BOUND = 1e-9


def random_laws(seed: int, size: int, *, zeros: float = 0.0) -> np.ndarray:
    """Order-1 laws [size + 1, size]."""
    rng = np.random.default_rng(seed)
    laws = rng.dirichlet(np.full(size, 0.6), size=size + 1)
    laws[rng.random(laws.shape) < zeros] = 0.0
    laws[:, 0] += 0.05
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

CASES = [
    case("same vocabulary", ABC, ABC),
    case("V_O of one", ABCD, ABC),
    case("V_O on both sides", ABC, ABX),
    case("disjoint but one", ABC, vocabulary(b"xya")),
    case("sparse target", ABCD, ABC, target_laws=random_laws(3, 4, zeros=0.5)),
    case("sparse draft", ABCD, ABC, draft_laws=random_laws(4, 3, zeros=0.5)),
    case("tiny q", ABC, ABC, draft_laws=TINY),
    case("tiny p", ABC, ABC, target_laws=TINY),
    case("end token in mid-block", ENDED, ENDED),
    case("end token of the target only", ENDED, vocabulary(b"ab")),
    case("padding rows", vocabulary(b"ab", unused=2), vocabulary(b"ab", unused=1)),
    case("gamma 1", ABC, ABX, plan=Plan(gammas=(1,))),
    case("gamma 3", vocabulary(b"ab"), vocabulary(b"ab"), plan=Plan(gammas=(3,)), tokens=4),
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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_text_has_the_target_law(case: Case) -> None:
    texts, reference, _ = enumerate_texts(case)
    assert sum(texts.values()) == pytest.approx(1.0, abs=BOUND)
    assert distance(texts, reference) < BOUND


@pytest.mark.parametrize(("law_format", "bound"), [("f32", 1e-6), ("f16", 2e-3)])
def test_rounded_law_is_close_and_no_more(law_format: str, bound: float) -> None:
    rounded = case("rounded", ABCD, ABC, method=Hybrid(law_format=law_format))
    texts, reference, _ = enumerate_texts(rounded)
    assert 1e-12 < distance(texts, reference) < bound


class _DrawsFromP(HybridDevice):
    """Replaces a rejected token ~ p instead of ~ max(p - q, 0)."""

    def settle(self, rejection: bytes, drafted: Drafted, *, position: int) -> int:
        assert drafted.law is not None
        return super().settle(
            rejection, replace(drafted, law=np.zeros_like(drafted.law)), position=position
        )


class _ForgetsOther(HybridDevice):
    """Never takes the region V_O."""

    def settle(self, rejection: bytes, drafted: Drafted, *, position: int) -> int:
        message = decode(HybridRejection, rejection, limit=1 << 20)
        changed = replace(message, other_mass=1e-12)
        return super().settle(encode(changed), drafted, position=position)


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

    broken = case("broken", ABC, ABX, method=Broken(law_format="f64"))
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
        SERVER_HALVES, "hybrid", lambda method, context: _AcceptsLikelier(method, context.coins)
    )
    texts, reference, _ = enumerate_texts(case("broken", ABC, ABX))
    assert distance(texts, reference) > 1e-3
