from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.draft.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    ChatFormat,
    FileEntry,
    Manifest,
)
from edge_sdk.errors import ManifestMismatch, ModelFolderInvalid, OutOfSpace

CHAT = ChatFormat(
    start="<s>",
    start_with_system="",
    prefix={"user": "U:", "assistant": "A:"},
    suffix={"user": "\n", "assistant": "\n"},
    generation="A:",
)


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    (tmp_path / "model.onnx").write_bytes(b"graph")
    return Manifest(
        name="tiny",
        source="owner/tiny",
        revision="abc",
        architecture="LlamaForCausalLM",
        graph="model.onnx",
        bits=4,
        context=64,
        logits_width=100,
        vocabulary_fingerprint="0" * 64,
        roles={"begin": (1,), "end_of_text": (2, 3)},
        prefix_ids=(1,),
        chat=CHAT,
        files={"model.onnx": FileEntry.of(tmp_path / "model.onnx")},
        backend="optimum",
        versions={"onnx": "1"},
    )


def test_what_is_written_is_read(manifest: Manifest, tmp_path: Path) -> None:
    manifest.write(tmp_path)
    assert Manifest.read(tmp_path) == manifest
    without = replace(manifest, chat=None, versions={}, prefix_ids=())
    without.write(tmp_path)
    assert Manifest.read(tmp_path) == without
    assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []


def _set(document: dict[str, Any], place: str, value: Any) -> None:
    *path, last = place.split("/")
    for key in path:
        document = document[key]
    if value is KeyError:
        del document[last]
    else:
        document[last] = value


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("version", 2),
        ("version", "1"),
        ("version", True),
        ("name", KeyError),
        ("name", ""),
        ("name", 7),
        ("bits", 5),
        ("bits", 4.0),
        ("context", 0),
        ("context", -1),
        ("context", True),
        ("logits_width", 1 << 40),
        ("vocabulary_fingerprint", "0" * 63),
        ("vocabulary_fingerprint", "G" * 64),
        ("graph", "other.onnx"),
        ("roles", []),
        ("roles/begin", [100]),
        ("roles/begin", [-1]),
        ("roles/begin", [True]),
        ("roles/king", [1]),
        ("prefix_ids", [100]),
        ("prefix_ids", "1"),
        ("chat/prefix", {"user": "U"}),
        ("chat/prefix", {"user": "U", "assistant": 3}),
        ("chat/prefix", {"user": "U", "assistant": "A", "system": "S"}),
        ("chat/suffix/tool", "x"),
        ("chat/generation", None),
        ("files", {}),
        ("files/model.onnx", 5),
        ("files/model.onnx/bytes", -1),
        ("files/model.onnx/sha256", "x"),
        ("files/..\\evil", {"bytes": 1, "sha256": "0" * 64}),
        ("files/..", {"bytes": 1, "sha256": "0" * 64}),
        ("files/manifest.json", {"bytes": 1, "sha256": "0" * 64}),
        ("versions", {"onnx": 1}),
        ("context", 10**30),
    ],
)
def test_a_wrong_field_is_named(manifest: Manifest, tmp_path: Path, place: str, value: Any) -> None:
    document = manifest.to_json()
    _set(document, place, value)
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(document))
    with pytest.raises(ModelFolderInvalid, match=r"export|version") as caught:
        Manifest.read(tmp_path)
    assert str(tmp_path / MANIFEST_NAME) in caught.value.message


@pytest.mark.parametrize("name", ["a/b", "/etc/passwd", "C:\\x", "", "a\0b"])
def test_a_file_name_cannot_leave_the_folder(manifest: Manifest, tmp_path: Path, name: str) -> None:
    document = manifest.to_json()
    document["files"][name] = {"bytes": 1, "sha256": "0" * 64}
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(document))
    with pytest.raises(ModelFolderInvalid, match="plain file name"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b" " * (MAX_MANIFEST_BYTES + 1)],
    ids=["empty", "cut", "list", "null", "no utf-8", "deep", "large"],
)
def test_no_manifest_document(tmp_path: Path, data: bytes) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(data)
    with pytest.raises(ModelFolderInvalid, match="export the model again"):
        Manifest.read(tmp_path)


def test_missing_folder_and_missing_manifest(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match="does not exist"):
        Manifest.read(tmp_path / "nowhere")
    with pytest.raises(ModelFolderInvalid, match=r"no readable manifest\.json"):
        Manifest.read(tmp_path)


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ModelFolderInvalid, match="is a file, not a folder"):
        Manifest.read(file)
    with pytest.raises(ModelFolderInvalid, match="File name too long"):
        Manifest.read(tmp_path / ("x" * 300))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MANIFEST_NAME)
    with pytest.raises(ModelFolderInvalid, match="no plain file"):
        Manifest.read(tmp_path)


def test_files_are_checked(manifest: Manifest, tmp_path: Path) -> None:
    manifest.check_files(tmp_path, digests=True)
    (tmp_path / "model.onnx").write_bytes(b"grapf")
    manifest.check_files(tmp_path)
    with pytest.raises(ManifestMismatch, match="SHA-256"):
        manifest.check_files(tmp_path, digests=True)
    (tmp_path / "model.onnx").write_bytes(b"gra")
    with pytest.raises(ModelFolderInvalid, match="3 bytes, the manifest says 5"):
        manifest.check_files(tmp_path)
    (tmp_path / "model.onnx").unlink()
    with pytest.raises(ModelFolderInvalid, match="missing"):
        manifest.check_files(tmp_path)


def test_a_failed_write_keeps_the_old_manifest(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest.write(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OutOfSpace, match="could not be written"):
        replace(manifest, name="other").write(tmp_path)
    assert Manifest.read(tmp_path).name == "tiny"
    assert len(list(tmp_path.iterdir())) == 2
