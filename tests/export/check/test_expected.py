from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.draft.toy_text import toy_byte_vocabulary
from edge_sdk.errors import PromptTooLong
from edge_sdk.vocab import Vocabulary
from export.check.expected import expected_acceptance
from export.check.local_target import LocalTarget
from export.progress import NoProgress


class SameLaw:
    """A target with one law after every token."""

    def __init__(self, vocabulary: Vocabulary, masses: dict[int, float]) -> None:
        self.vocabulary = vocabulary
        self._logits = np.full(len(vocabulary), -np.inf, dtype=np.float32)
        for token, mass in masses.items():
            self._logits[token] = np.log(mass)

    def begin(self, prompt: str) -> NDArray[np.float32]:
        return self._logits

    def extend(self, ids: Sequence[int]) -> NDArray[np.float32]:
        return self._logits


BIG = toy_byte_vocabulary([b" the", b" of"])  # ids 256 and 257; the draft lacks " of"
SMALL = toy_byte_vocabulary([b" the"])


def toy_draft(masses: dict[int, float]) -> ToyDraft:
    row = np.zeros(len(SMALL))
    for token, mass in masses.items():
        row[token] = mass
    return ToyDraft.from_laws(SMALL, np.tile(row, (len(SMALL) + 1, 1)))


def test_the_overlap_of_known_laws() -> None:
    target = SameLaw(BIG, {65: 0.5, 66: 0.25, 256: 0.15, 257: 0.1})
    draft = toy_draft({65: 0.3, 66: 0.6, 256: 0.1})
    found = expected_acceptance(target, draft, ["A", "AB"], temperature=1.0, tokens=12)
    assert found.by_method["hybrid"] == pytest.approx(0.3 + 0.25 + 0.1, abs=1e-6)
    assert found.by_method["coupled"] < found.by_method["hybrid"]
    assert found.by_method["greedy"] == 0.0, "65 against 66"
    assert found.other_mass == pytest.approx(0.1, abs=1e-6)
    assert (found.positions, found.how, len(found.by_prompt)) == (24, "laws", 2)
    assert found.error == pytest.approx(0.0, abs=1e-6)
    one = expected_acceptance(target, draft, ["A"], temperature=1.0, tokens=3)
    assert one.error is None


def test_a_prompt_without_room() -> None:
    target = SameLaw(BIG, {65: 1.0})
    draft = toy_draft({65: 1.0})
    with pytest.raises(PromptTooLong, match="shorter"):
        expected_acceptance(target, draft, ["A" * (draft.context + 1)])


def test_a_model_accepts_itself(drafts: dict[int, Path], source: Path) -> None:
    """The fp32 draft and its own source as the target: the same laws, whatever the path."""
    target = LocalTarget(source, trust_remote_code=False, progress=NoProgress())
    prompts = ["12 12"]  # with this seed the target draws no control token, which has no text
    with OnnxDraft.open(drafts[32], threads=1) as draft:
        found = expected_acceptance(target, draft, prompts, temperature=0.8, tokens=20, seed=2)
    # A little mass lies on control tokens, which are outside V_C.
    assert found.other_mass is not None
    assert 0 < found.other_mass < 0.15
    assert found.by_method["hybrid"] == pytest.approx(1 - found.other_mass, abs=1e-3)
    assert found.by_method["coupled"] > 0.85
    assert found.by_method["greedy"] > 0.85
    assert found.positions > 2
    with OnnxDraft.open(drafts[4], threads=1) as draft:
        near = expected_acceptance(target, draft, prompts, temperature=0.8, tokens=20, seed=2)
    assert 0.5 < near.by_method["hybrid"] < 0.9999
    seconds = target.pass_seconds([1, 3])
    assert set(seconds) == {1, 3}
    assert all(value > 0 for value in seconds.values())
