"""The proof that what is called lossless is: exact enumeration of every outcome."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness.case import Case, Plan
from harness.cases_to_prove import ABC, ABCD, ABX, BOUND, CASES, SETTINGS, case
from harness.enumeration import distance, enumerate_texts

from edge_sdk.decoding.baselines import Full, GreedyResample, TargetResample
from edge_sdk.decoding.candidates import Candidates
from edge_sdk.decoding.consultant import Consultant
from edge_sdk.decoding.hybrid import Hybrid
from edge_sdk.decoding.mentored import Mentored
from edge_sdk.decoding.method import Method
from edge_sdk.decoding.registry import METHODS
from edge_sdk.decoding.uncertain import Uncertain
from edge_sdk.decoding.upload import Upload

COMPACT = Hybrid(form="head_tail", law_format="f64")

OTHER_METHODS = [
    COMPACT,
    Candidates(k=1, m=1, law_format="f64"),
    Upload(),
    Full(law_format="f64"),
    Mentored(d=0.0),
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
