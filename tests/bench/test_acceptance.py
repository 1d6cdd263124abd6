from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.overlap import measure
from bench.prompts import PROMPTS
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.draft.toy_text import toy_byte_vocabulary
from edge_sdk.vocab import Vocabulary
from server_app.target.toy import ToyTarget

Program = Callable[..., "subprocess.CompletedProcess[str]"]


def laws(vocabulary: Vocabulary, masses: dict[int, float]) -> NDArray[np.float64]:
    """The same law after every token [V+1, V]."""
    size = len(vocabulary)
    row = np.zeros(size)
    for token, mass in masses.items():
        row[token] = mass
    return np.tile(row, (size + 1, 1))


def test_the_overlap_of_known_laws() -> None:
    big = toy_byte_vocabulary([b" the", b" of"])  # ids 256 and 257; the draft lacks " of"
    small = toy_byte_vocabulary([b" the"])
    target = ToyTarget.from_laws(big, laws(big, {65: 0.5, 66: 0.25, 256: 0.15, 257: 0.1}))
    draft = ToyDraft.from_laws(small, laws(small, {65: 0.3, 66: 0.6, 256: 0.1}))
    overlap = measure(target, draft, temperature=1.0, prompts=["A", "AB"], tokens=12)
    assert overlap.acceptance == pytest.approx(0.3 + 0.25 + 0.1, abs=1e-6)
    assert overlap.other_mass == pytest.approx(0.1, abs=1e-6)
    assert overlap.error == pytest.approx(0.0, abs=1e-6)
    assert overlap.positions == 24
    greedy = measure(target, draft, temperature=0.0, prompts=["A", "AB"], tokens=12)
    assert greedy.acceptance == 0.0  # 65 against 66
    assert measure(
        target, draft, temperature=0.5, prompts=["A"], tokens=4
    ).acceptance == pytest.approx(_at_half(), abs=1e-6)


def _at_half() -> float:
    p = np.array([0.5, 0.25, 0.15, 0.1]) ** 2
    q = np.array([0.3, 0.6, 0.1, 0.0]) ** 2
    return float(np.minimum(p / p.sum(), q / q.sum()).sum())


def test_the_last_line_is_json_with_string_keys(program: Program) -> None:
    done = program(
        "bench.acceptance", "--json", "--target", "toy:1", "--draft", "toy:2", "--tokens", "4"
    )
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout.splitlines()[-1])
    for name in ("expected_acceptance", "standard_error", "other_mass"):
        assert set(line[name]) == {"0.3", "0.7", "1.0"}
    assert line["prompts"] == len(PROMPTS) >= 8
    assert line["common_vocabulary"] == 261


def test_wrong_arguments_end_in_a_sentence(program: Program) -> None:
    done = program("bench.acceptance", "--target", "toy:one")
    assert done.returncode == 1
    assert "toy:one" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.models
def test_the_real_pair_overlaps(gemma_folder: Path, smollm2_draft_folder: Path) -> None:
    from bench.models import open_draft
    from server_app.target.loading import load_target

    target = load_target(gemma_folder)
    draft = open_draft(str(smollm2_draft_folder))
    numbers = [prompt for prompt in PROMPTS if any(c.isdigit() for c in prompt)]
    try:
        overall = measure(target, draft, temperature=0.7, prompts=PROMPTS, tokens=24)
        digits = measure(target, draft, temperature=0.7, prompts=numbers, tokens=24)
    finally:
        draft.close()
    # 0.62 is expected; the wrong twin of every digit gives 0.45.
    assert overall.acceptance > 0.53
    assert digits.acceptance > 0.45
