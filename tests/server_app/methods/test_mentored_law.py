"""The law of `mentored` against what it is defined to be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server_app.methods.mentored_law import MentoredLaw, mentored_law

TOLERANCE = 1e-10


def law_of(weights: list[float]) -> np.ndarray:
    array = np.array(weights, dtype=np.float64)
    return array / array.sum()


def kl(p: np.ndarray, r: np.ndarray) -> float:
    held = p > 0
    with np.errstate(divide="ignore"):
        return float(np.sum(p[held] * (np.log(p[held]) - np.log(r[held]))))


def what_comes_out(law: MentoredLaw, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Law of a token that is drafted ~ q, accepted or replaced, as the server half does it."""
    pairs = zip(p.tolist(), q.tolist(), strict=True)
    kept = np.array([b * law.accept(a, b) if b > 0 else 0.0 for a, b in pairs])
    residual = law.residual(p, q)
    missing = 1.0 - kept.sum()
    if residual.sum() <= 0:
        assert missing < 1e-9
        return kept
    return kept + missing * residual / residual.sum()


def clipped(p: np.ndarray, q: np.ndarray, a: float, b: float) -> np.ndarray:
    return np.clip(q, p / b, p / a)


def bracket(p: np.ndarray, q: np.ndarray, a: float) -> float:
    """b of an a by bisection on the sum, written down once more."""
    low, high = 0.0, 1.0  # of 1/b
    for _ in range(200):
        middle = (low + high) / 2
        total = np.minimum(np.maximum(q, p * middle), p / a).sum()
        low, high = (middle, high) if total < 1 else (low, middle)
    return 1 / high if high > 0 else np.inf


weights = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-6, 1.0), st.sampled_from([0.2, 0.5, 1.0])),
    min_size=6,
    max_size=6,
).filter(any)
bounds = st.one_of(st.sampled_from([1e-6, 0.01, 0.3, 1.0, 5.0]), st.floats(1e-6, 3.0))


@settings(max_examples=600, deadline=None)
@given(weights, weights, bounds)
def test_it_is_a_law_within_its_divergence(one: list[float], other: list[float], d: float) -> None:
    p, q = law_of(one), law_of(other)
    law = mentored_law(p, q, d, TOLERANCE)
    final = law.final(p, q)
    assert final.sum() == pytest.approx(1, abs=1e-9)
    assert (final >= 0).all()
    assert law.a <= 1 <= law.b
    assert np.abs(what_comes_out(law, p, q) - final).max() < 1e-9
    wanted = min(d, kl(p, q))
    assert law.divergence <= wanted + 1e-12
    if law.b < 1e290:
        assert law.divergence == pytest.approx(wanted, abs=1e-9)
    assert kl(p, final) == pytest.approx(law.divergence, abs=1e-8)


@settings(max_examples=300, deadline=None)
@given(weights, weights, bounds)
def test_it_is_the_clip_of_its_bounds(one: list[float], other: list[float], d: float) -> None:
    p, q = law_of(one), law_of(other)
    law = mentored_law(p, q, d, TOLERANCE)
    final = law.final(p, q)
    if law.a > 0:
        assert np.abs(final - clipped(p, q, law.a, law.b)).max() < 1e-9
        if law.a >= 1e-6:
            assert np.abs(final - clipped(p, q, law.a, bracket(p, q, law.a))).max() < 1e-9
    else:
        # Nothing bounds from above where p is not 0; where it is, what is kept goes up to q.
        held = p > 0
        assert np.abs(final[held] - np.maximum(q, p / law.b)[held]).max() < 1e-9
        assert np.abs(final[~held] - law.kept * q[~held]).max(initial=0) < 1e-9


@given(weights, weights)
def test_no_divergence_is_the_target_and_much_is_the_draft(
    one: list[float], other: list[float]
) -> None:
    p, q = law_of(one), law_of(other)
    assert np.abs(mentored_law(p, q, 0.0, TOLERANCE).final(p, q) - p).max() < 1e-12
    assert np.abs(what_comes_out(mentored_law(p, q, 0.0, TOLERANCE), p, q) - p).max() < 1e-12
    if np.isfinite(kl(p, q)):
        assert np.abs(mentored_law(p, q, 1e6, TOLERANCE).final(p, q) - q).max() == 0


def test_more_divergence_keeps_more_drafts() -> None:
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.ones(50)), rng.dirichlet(np.ones(50))
    kept = []
    for d in (0.0, 0.01, 0.1, 0.3, 1.0):
        law = mentored_law(p, q, d, TOLERANCE)
        kept.append(sum(b * law.accept(a, b) for a, b in zip(p, q, strict=True)))
    assert kept == sorted(kept)
    assert kept[0] == pytest.approx(np.minimum(p, q).sum())
    assert kept[-1] > kept[0] + 0.2


def test_zeros_in_both_at_different_places() -> None:
    p = np.array([0.5, 0.5, 0.0, 0.0])
    q = np.array([0.0, 0.5, 0.5, 0.0])
    for d in (0.05, 0.3, 0.6, 2.0):
        law = mentored_law(p, q, d, TOLERANCE)
        assert kl(p, law.final(p, q)) == pytest.approx(d, abs=1e-8)
        assert law.final(p, q)[3] == 0


def test_laws_without_a_common_id() -> None:
    p, q = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    law = mentored_law(p, q, 0.3, TOLERANCE)
    assert law.final(p, q) == pytest.approx([np.exp(-0.3), 1 - np.exp(-0.3)], abs=1e-9)


def test_equal_laws_stay() -> None:
    p = np.array([0.25, 0.75])
    assert mentored_law(p, p, 0.3, TOLERANCE).accept(0.25, 0.25) == 1
