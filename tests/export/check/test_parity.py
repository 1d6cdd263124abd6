from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.errors import InvalidRequest, ModelFolderInvalid
from export.check.parity import Parity, compare, measure_parity
from export.sources import resolve_source

IDS = list(np.random.default_rng(3).integers(3, 259, 40))


def parity(folder: Path, source: Path, ids: list[int] = IDS) -> Parity:
    with OnnxDraft.open(folder, threads=1) as draft:
        return measure_parity(resolve_source(source), draft, ids)


def test_fp32_is_equal(drafts: dict[int, Path], source: Path) -> None:
    found = parity(drafts[32], source)
    assert found.tokens == len(found.kl_by_position) == 40
    assert found.max_logit_difference < 1e-3
    assert (found.top1, found.kl) == (1.0, pytest.approx(0, abs=1e-7))
    assert found.max_path_difference < 1e-3


def test_few_bits_are_near(drafts: dict[int, Path], source: Path) -> None:
    found = parity(drafts[4], source)
    assert found.max_logit_difference > 0.01
    assert 1e-5 < found.kl < 0.5


def test_other_weights_are_seen(drafts: dict[int, Path], source: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    other = tmp_path / "other"
    shutil.copytree(source, other)
    model = AutoModelForCausalLM.from_pretrained(source)
    model.model.layers[1].mlp.down_proj.weight.data *= -1
    model.save_pretrained(other)
    found = parity(drafts[32], other)
    assert found.kl > 0.1
    assert found.top1 < 0.9


def test_kl_of_known_laws() -> None:
    p, q = np.array([0.75, 0.25]), np.array([0.5, 0.5])
    rows = np.log([p, p]).astype(np.float32)
    found = compare(rows, np.log([q, p]).astype(np.float32) + 3, max_path_difference=0.0)
    expected = float((p * np.log(p / q)).sum())
    assert found.kl_by_position == pytest.approx((expected, 0.0), abs=1e-6)
    assert found.kl == pytest.approx(expected / 2, abs=1e-6)


def test_what_cannot_be_compared(drafts: dict[int, Path], source: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="at least two tokens"):
        parity(drafts[32], source, [5])
    damaged = tmp_path / "damaged"
    shutil.copytree(source, damaged)
    config = damaged / "config.json"
    config.write_text(config.read_text().replace('"hidden_act": "silu"', '"hidden_act": "warp"'))
    with pytest.raises(ModelFolderInvalid, match="not a readable model"):
        parity(drafts[32], damaged)
