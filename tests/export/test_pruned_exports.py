"""Drafts whose head is for one target, from export to check."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.draft.follower import Follower
from edge_sdk.draft.manifest import Manifest
from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.errors import InvalidRequest, VocabularyMismatch
from edge_sdk.vocab import Alignment
from export import export_draft
from export.check import check_draft
from export.check.run import CheckOptions
from export.target_vocabulary import read_target


def write_target(folder: Path, like: Path, names: dict[str, str]) -> None:
    """A model whose tokenizer spells some tokens differently."""
    shutil.copytree(like, folder)
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    vocab = document["model"]["vocab"]
    document["model"]["vocab"] = {names.get(name, name): token for name, token in vocab.items()}
    document["model"]["merges"] = []
    path.write_text(json.dumps(document))


@pytest.fixture(scope="module")
def folders(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A source, two targets, and the drafts of the source in fp32: for all, for the first."""
    from transformers import AutoConfig, AutoModelForCausalLM

    root = tmp_path_factory.mktemp("pruned")
    found = {name: root / name for name in ("source", "target", "other", "whole", "pruned")}
    shutil.copytree(tiny_checkpoint, found["source"])
    config = AutoConfig.from_pretrained(tiny_checkpoint, head_dim=16, initializer_range=0.2)
    AutoModelForCausalLM.from_config(config).save_pretrained(found["source"])
    write_target(found["target"], tiny_checkpoint, {"th": "aa", "the": "ab", "12": "99"})
    write_target(found["other"], tiny_checkpoint, {"Ġthe": "ba"})
    target = str(found["target"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSD_HOME", str(root / "home"))
        export_draft(found["source"], found["whole"], bits=32)
        export_draft(found["source"], found["pruned"], bits=32, target=target, prune=True)
    return found


def test_the_same_laws_on_the_common_vocabulary(folders: dict[str, Path]) -> None:
    target = read_target(str(folders["target"]))
    manifest = Manifest.read(folders["pruned"])
    assert manifest.pruned is not None
    assert manifest.pruned.target == "target"
    with OnnxDraft.open(folders["whole"]) as whole, OnnxDraft.open(folders["pruned"]) as pruned:
        pair = Alignment.between(target=target.vocabulary, draft=whole.vocabulary)
        assert len(pair) == manifest.pruned.size < len(whole.vocabulary) - 3
        drafts = [Follower(draft, pair, target.vocabulary) for draft in (whole, pruned)]
        for follower in drafts:
            follower.begin(follower.model.text.prompt("12 the sea"))
        for rank in (3, 70, 199, 5):
            expected, row = (follower.logits() for follower in drafts)
            assert len(row) == len(pair)
            np.testing.assert_allclose(row, expected, atol=1e-4)
            for follower in drafts:
                follower.push(rank)


def test_another_target_is_refused(folders: dict[str, Path]) -> None:
    other = read_target(str(folders["other"]))
    with OnnxDraft.open(folders["pruned"]) as draft:
        pair = Alignment.between(target=other.vocabulary, draft=draft.vocabulary)
        with pytest.raises(VocabularyMismatch, match="for the target target alone"):
            Follower(draft, pair, other.vocabulary)
    with pytest.raises(VocabularyMismatch, match="export it for this target"):
        check_draft(folders["pruned"], CheckOptions(target=str(folders["other"]), threads=(1,)))


def test_a_check_of_a_pruned_draft(folders: dict[str, Path]) -> None:
    quick: dict[str, Any] = {"threads": (1,), "prompts": ("the",), "tokens": 4}
    alone = check_draft(folders["pruned"], CheckOptions(**quick))
    assert alone.parity is None
    assert any("for the target target alone" in note for note in alone.notes)
    found = check_draft(folders["pruned"], CheckOptions(target=str(folders["target"]), **quick))
    assert found.parity is not None
    assert found.parity.top1 == 1.0
    assert found.parity.kl == pytest.approx(0, abs=1e-7)
    assert found.acceptance is not None
    whole = check_draft(folders["whole"], CheckOptions(target=str(folders["target"]), **quick))
    assert whole.acceptance is not None
    for method, value in found.acceptance.by_method.items():
        assert value == pytest.approx(whole.acceptance.by_method[method], abs=1e-3)


def test_graphs_are_taken_over_and_heads_are_not(
    folders: dict[str, Path], tmp_path: Path, home: Path, recorder: Any
) -> None:
    def sizes(name: str, **options: Any) -> int:
        manifest = export_draft(
            folders["source"], tmp_path / name, progress=recorder, bits=8, **options
        )
        return manifest.files["model.onnx.data"].bytes

    assert sizes("small", target=str(folders["target"]), prune=True) <= sizes("all") + 8192
    with pytest.raises(InvalidRequest, match="--target"):
        export_draft(folders["source"], tmp_path / "none", prune=True)
