"""Draft folders that are damaged, or are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_sdk.draft.manifest import Manifest
from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.errors import (
    InvalidRequest,
    ManifestMismatch,
    ModelFolderInvalid,
    TokenizerUnsupported,
)

Folder = Callable[..., Path]


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match="does not exist"):
        OnnxDraft.open(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_missing_and_truncated_files(bag_folder: Folder, name: str, damage: str) -> None:
    folder = bag_folder()
    if damage == "missing":
        (folder / name).unlink()
    else:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelFolderInvalid, match=name):
        OnnxDraft.open(folder)


def test_a_graph_that_is_none(bag_folder: Folder, remake_manifest: Callable[..., None]) -> None:
    folder = bag_folder()
    (folder / "model.onnx").write_bytes(b"not a graph at all")
    remake_manifest(folder)
    with pytest.raises(ModelFolderInvalid, match="onnxruntime cannot load"):
        OnnxDraft.open(folder)


def test_weights_shorter_than_the_graph_says(
    bag_folder: Folder, remake_manifest: Callable[..., None]
) -> None:
    folder = bag_folder()
    data = (folder / "model.onnx.data").read_bytes()
    (folder / "model.onnx.data").write_bytes(data[: len(data) // 2])
    remake_manifest(folder)
    with pytest.raises(ModelFolderInvalid, match="onnxruntime cannot load"):
        OnnxDraft.open(folder)


def test_a_graph_of_another_width(bag_folder: Folder) -> None:
    with pytest.raises(ManifestMismatch, match=r"272 logits.*280"):
        OnnxDraft.open(bag_folder(manifest={"logits_width": 280}))


def test_a_tokenizer_of_another_export(
    bag_folder: Folder,
    remake_manifest: Callable[..., None],
    remake_tokenizer: Callable[..., None],
) -> None:
    folder = bag_folder()
    fingerprint = Manifest.read(folder).vocabulary_fingerprint
    size = (folder / "tokenizer.json").stat().st_size
    remake_tokenizer(folder, first_word="tha")
    assert (folder / "tokenizer.json").stat().st_size == size
    with pytest.raises(ManifestMismatch, match="SHA-256"):
        OnnxDraft.open(folder)
    remake_manifest(folder, vocabulary_fingerprint=fingerprint)
    with pytest.raises(ManifestMismatch, match="fingerprint"):
        OnnxDraft.open(folder)


def test_changed_weights_of_the_same_size(bag_folder: Folder) -> None:
    folder = bag_folder()
    weights = folder / "model.onnx.data"
    data = bytearray(weights.read_bytes())
    data[100] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ManifestMismatch, match=r"model\.onnx\.data does not have the SHA-256"):
        OnnxDraft.open(folder)


def test_a_tokenizer_without_merges(
    bag_folder: Folder, remake_manifest: Callable[..., None]
) -> None:
    folder = bag_folder()
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text("utf-8"))
    del document["model"]["merges"]
    path.write_text(json.dumps(document), "utf-8")
    remake_manifest(folder)
    with pytest.raises(TokenizerUnsupported, match=r"tokenizer\.json cannot be loaded"):
        OnnxDraft.open(folder)


@pytest.mark.parametrize("threads", [-1, 0, 257, 100_000, 10**11])
def test_threads_are_bounded(bag_folder: Folder, threads: int) -> None:
    with pytest.raises(InvalidRequest, match="use 1 to 256"):
        OnnxDraft.open(bag_folder(), threads=threads)
