"""Drafts whose logits are those of one common vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.draft.follower import Follower
from edge_sdk.draft.manifest import FileEntry, Manifest
from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.draft.pruned_head import PrunedHead
from edge_sdk.draft.toy_text import toy_byte_vocabulary
from edge_sdk.errors import ManifestMismatch, ModelFolderInvalid, VocabularyMismatch
from edge_sdk.vocab import Alignment, Vocabulary

TARGET = toy_byte_vocabulary([b"the", b" t", b" sea"])
OTHER = toy_byte_vocabulary([b"the", b" t", b" land"])


@pytest.fixture
def pruned(exported: Any, tmp_path: Path) -> tuple[Path, Alignment]:
    """The folder of `exported`, with a head for what it shares with `TARGET`."""
    from export.progress import NoProgress
    from export.pruned_graph import prune_head

    with OnnxDraft.open(exported.folder, threads=1) as draft:
        alignment = Alignment.between(target=TARGET, draft=draft.vocabulary)
    prune_head(
        exported.folder / "model.onnx",
        tmp_path / "model.onnx",
        keep=alignment.draft_ids,
        progress=NoProgress(),
    )
    (tmp_path / "tokenizer.json").write_bytes((exported.folder / "tokenizer.json").read_bytes())
    manifest = Manifest.read(exported.folder)
    names = ("model.onnx", "model.onnx.data", "tokenizer.json")
    replace(
        manifest,
        files={name: FileEntry.of(tmp_path / name) for name in names},
        pruned=PrunedHead.of(alignment, target="sea"),
    ).write(tmp_path)
    return tmp_path, alignment


def follow(draft: OnnxDraft, target: Vocabulary) -> Follower:
    alignment = Alignment.between(target=target, draft=draft.vocabulary)
    return Follower(draft, alignment, target)


def test_the_law_on_the_common_vocabulary_is_that_of_the_whole_draft(
    exported: Any, pruned: tuple[Path, Alignment]
) -> None:
    folder, alignment = pruned
    laws = []
    for path in (exported.folder, folder):
        with OnnxDraft.open(path, threads=1) as draft:
            follower = follow(draft, TARGET)
            follower.begin(draft.text.prompt("the 12 theses"))
            for rank in (5, len(alignment) - 2, 17, 90):
                follower.push(rank)
                logits = follower.logits().astype(np.float64)
                assert logits.shape == (len(alignment),)
                laws.append(np.exp(logits - logits.max()))
    half = len(laws) // 2
    for ours, theirs in zip(laws[:half], laws[half:], strict=True):
        assert np.abs(ours / ours.sum() - theirs / theirs.sum()).sum() <= 1e-4


def test_another_target_is_refused(pruned: tuple[Path, Alignment]) -> None:
    with OnnxDraft.open(pruned[0], threads=1) as draft:
        assert len(draft.vocabulary) > len(pruned[1])
        follow(draft, TARGET)
        with pytest.raises(VocabularyMismatch, match="target sea alone"):
            follow(draft, OTHER)


@pytest.mark.parametrize("change", ["fewer", "order"])
def test_another_common_vocabulary_of_the_same_target_is_refused(
    pruned: tuple[Path, Alignment], change: str
) -> None:
    head, (_, alignment) = PrunedHead.of(pruned[1], target="sea"), pruned
    head.check(alignment)
    if change == "fewer":
        ids: dict[str, Any] = {
            "target_ids": alignment.target_ids[:-1],
            "draft_ids": alignment.draft_ids[:-1],
        }
    else:
        ids = {"draft_ids": alignment.draft_ids[::-1]}
    with pytest.raises(VocabularyMismatch, match="shared with the target sea"):
        head.check(replace(alignment, **ids))


def test_the_manifest_keeps_it(pruned: tuple[Path, Alignment]) -> None:
    folder, alignment = pruned
    assert Manifest.read(folder).pruned == PrunedHead.of(alignment, target="sea")


@pytest.mark.parametrize(
    ("field", "value"),
    [("size", 0), ("size", 10_000), ("pair_id", "ab"), ("target", 3), ("draft_ids_sha256", None)],
)
def test_fields_that_cannot_be(
    pruned: tuple[Path, Alignment],
    rewrite_manifest: Callable[..., None],
    field: str,
    value: object,
) -> None:
    folder, alignment = pruned
    facts = {**asdict(PrunedHead.of(alignment, target="sea")), field: value}
    rewrite_manifest(folder, pruned=facts)
    with pytest.raises(ModelFolderInvalid, match=field):
        Manifest.read(folder)


def test_a_manifest_that_does_not_say_so(
    pruned: tuple[Path, Alignment], rewrite_manifest: Callable[..., None]
) -> None:
    rewrite_manifest(pruned[0], pruned=None)
    with pytest.raises(ManifestMismatch, match="different exports"):
        OnnxDraft.open(pruned[0], threads=1)
