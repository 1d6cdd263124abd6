from __future__ import annotations

import numpy as np
import pytest

from export.check.agreement import coupled, overlap, tokens_a_round


def laws(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """p on six ids, of which the last is V_O, and q on five with a zero."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(6, 0.5)), rng.dirichlet(np.full(5, 0.5))
    q[rng.integers(5)] = 0
    return p, q / q.sum()


def test_overlap() -> None:
    assert overlap(np.array([0.5, 0.3]), np.array([0.1, 0.9])) == pytest.approx(0.4)


@pytest.mark.parametrize("seed", range(6))
def test_coupled_is_how_often_shared_noise_agrees(seed: int) -> None:
    p, q = laws(seed)
    whole = np.append(q, 0.0)
    noise = -np.log(-np.log(np.random.default_rng(9).random((200_000, 6))))
    with np.errstate(divide="ignore"):
        same = (np.log(p) + noise).argmax(1) == (np.log(whole) + noise).argmax(1)
    # Standard error at most 0.0012.
    assert coupled(p[:5], q) == pytest.approx(same.mean(), abs=0.005)
    assert coupled(p[:5], q) <= overlap(p[:5], q) + 1e-12


def test_coupled_at_the_edges() -> None:
    certain = np.array([0.0, 1.0, 0.0])
    assert coupled(certain, certain) == 1.0
    assert coupled(certain, np.array([1.0, 0.0, 0.0])) == 0.0
    assert coupled(np.zeros(3), certain) == 0.0, "all mass on V_O"
    flat = np.full(1000, 1e-3)
    assert coupled(flat, flat) == pytest.approx(1.0)


@pytest.mark.parametrize(("a", "gamma", "tokens"), [(0, 3, 1), (1, 3, 4), (0.5, 2, 1.75)])
def test_tokens_a_round(a: float, gamma: int, tokens: float) -> None:
    assert tokens_a_round(a, gamma) == pytest.approx(tokens)
