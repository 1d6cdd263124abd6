"""Head and tail with a head too short and tails that run out: every outcome enumerated.

On laws as small as those of a proof the head would hold everything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from harness.case import Case, Plan
from harness.enumeration import distance, enumerate_texts

from edge_sdk.decoding.candidates import Candidates
from edge_sdk.decoding.head_tail_device import HeadTailDevice
from edge_sdk.decoding.hybrid import Hybrid
from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Drafted, Method
from edge_sdk.draft.toy_text import toy_vocabulary

BOUND = 1e-9
SIZES = "server_app.methods.head_tail.head_and_tail_sizes"


def one_choice(first: list[float]) -> np.ndarray:
    """Laws that leave a choice at the first position, after the prompt, and none later."""
    size = len(first)
    laws = np.zeros((size + 1, size))
    laws[:, 1] = 1.0
    laws[1] = first
    return laws


def case(name: str, p: list[float], q: list[float], draft: bytes, **changes: Any) -> Case:
    base = Case(
        name=name,
        target_laws=one_choice(p),
        draft_laws=one_choice(q),
        target_vocabulary=toy_vocabulary([b"a", b"b", b"c"][: len(p)], controls=()),
        draft_vocabulary=toy_vocabulary([bytes([piece]) for piece in draft], controls=()),
        method=Hybrid(law_format="f64"),
        tokens=1,
        plan=Plan(gammas=(1,)),
    )
    return replace(base, **changes)


CASES = [
    case("V_O in the tail", [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], b"axb"),
    case("tail tokens are refused now and then", [0.6, 0.3, 0.1], [0.9, 0.1, 0.0], b"abc"),
    case("the head alone is raised", [0.8, 0.2, 0.0], [0.1, 0.9, 0.0], b"abc"),
    case(
        "replies are lost",
        [0.6, 0.3, 0.1],
        [0.9, 0.1, 0.0],
        b"abc",
        plan=Plan(gammas=(1,), lose_replies=True),
    ),
    case(
        "the session is lost while the device asks",
        [0.6, 0.3, 0.1],
        [0.9, 0.1, 0.0],
        b"abc",
        plan=Plan(gammas=(1,), reopen_asks=frozenset({1, 3})),
    ),
    case(
        "the same with a block behind",
        [0.6, 0.3, 0.1],
        [0.9, 0.1, 0.0],
        b"abc",
        tokens=2,
        plan=Plan(gammas=(1,), ahead=1, reopen_asks=frozenset({1})),
    ),
]


@pytest.mark.parametrize(
    "method", [Hybrid(law_format="f64"), Candidates(k=1, m=1, law_format="f64")]
)
@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_short_head_has_the_target_law(
    case: Case, ahead: int, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SIZES, lambda head: (1, ahead))
    monkeypatch.setattr("server_app.methods.head_tail._LEAST_MORE", 1)
    monkeypatch.setattr("server_app.methods.head_tail.MOST_MORE", 1)
    texts, reference, paths = enumerate_texts(replace(case, method=method))
    print(f"{paths} paths")
    assert paths > 10
    assert distance(texts, reference) < BOUND


class _KeepsEveryTailToken(HeadTailDevice):
    def q(self, ids: np.ndarray, drafted: Drafted) -> np.ndarray:
        assert self._state is not None
        head = np.isin(ids, self._state.ids)
        return np.where(head, super().q(ids, drafted), 0.0)


def test_keeping_every_tail_token_fails_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Hybrid):
        def device_half(self, context: DeviceContext) -> DeviceHalf:
            return _KeepsEveryTailToken(context, "f64")

    monkeypatch.setattr(SIZES, lambda head: (1, 1))
    broken = replace(CASES[1], method=Broken(law_format="f64"))
    texts, reference, _ = enumerate_texts(broken)
    assert distance(texts, reference) > 1e-3
