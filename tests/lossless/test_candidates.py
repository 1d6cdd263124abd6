"""Candidates whose lists are long: every outcome enumerated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness.case import Case, Plan
from harness.cases_to_prove import ABC, ABX, BOUND, case
from harness.enumeration import distance, enumerate_texts

from edge_sdk.decoding.candidates import CandidateBlock, Candidates, CandidatesDevice
from edge_sdk.decoding.method import Drafted
from edge_sdk.wire import decode, encode


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
