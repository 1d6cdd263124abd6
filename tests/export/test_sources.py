from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.errors import (
    CosdError,
    ModelFolderInvalid,
    TokenizerUnsupported,
    UnsupportedModel,
)
from export.sources import resolve_source


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


def _config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def _truncate(path: Path, by: int = 100) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def test_a_folder(folder: Path, home: Path) -> None:
    found = resolve_source(folder)
    assert found.path == folder
    assert found.name == "copy"
    assert found.checkpoint.architecture == "LlamaForCausalLM"
    assert found.checkpoint.logits_width == 272
    assert found.checkpoint.context == 128
    assert len(found.revision) == 64
    assert not home.exists(), "a folder is used where it lies"
    _config(folder, rope_theta=5.0)
    assert resolve_source(str(folder)).revision == found.revision


def test_shards_are_checked_one_by_one(folder: Path) -> None:
    whole = folder / "model.safetensors"
    shutil.copy(whole, folder / "model-1.safetensors")
    shutil.copy(whole, folder / "model-2.safetensors")
    whole.unlink()
    table = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    assert len(resolve_source(folder).checkpoint.weights) == 2
    _truncate(folder / "model-2.safetensors")
    with pytest.raises(ModelFolderInvalid, match=r"model-2\.safetensors are missing or truncated"):
        resolve_source(folder)
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(ModelFolderInvalid, match=r"model-1\.safetensors are missing"):
        resolve_source(folder)


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda f: shutil.rmtree(f), ModelFolderInvalid, "is no folder"),
        (lambda f: (f / "config.json").unlink(), ModelFolderInvalid, r"no config\.json"),
        (lambda f: _truncate(f / "config.json", 5), ModelFolderInvalid, "not readable JSON"),
        (lambda f: (f / "config.json").write_text("[]"), ModelFolderInvalid, "not a JSON object"),
        (lambda f: (f / "tokenizer.json").unlink(), TokenizerUnsupported, r"no tokenizer\.json"),
        (lambda f: _truncate(f / "tokenizer.json"), ModelFolderInvalid, "not readable JSON"),
        (lambda f: (f / "model.safetensors").unlink(), ModelFolderInvalid, "no weights"),
        (lambda f: _truncate(f / "model.safetensors"), ModelFolderInvalid, "truncated"),
        (
            lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 99),
            ModelFolderInvalid,
            "truncated",
        ),
        (lambda f: (f / "model.safetensors").write_bytes(b""), ModelFolderInvalid, "truncated"),
        (lambda f: _config(f, is_encoder_decoder=True), UnsupportedModel, "encoder-decoder"),
        (lambda f: _config(f, model_type="warp"), UnsupportedModel, "model type 'warp'"),
        (lambda f: _config(f, model_type=["llama"]), UnsupportedModel, "model type"),
        (
            lambda f: _config(f, architectures=["LlamaForSequenceClassification"]),
            UnsupportedModel,
            "LlamaForSequenceClassification, which does not write text",
        ),
        (lambda f: _config(f, vocab_size="many"), ModelFolderInvalid, "vocab_size"),
        (
            lambda f: _config(f, max_position_embeddings=None),
            ModelFolderInvalid,
            "max_position_embeddings",
        ),
    ],
)
def test_a_damaged_folder_is_named(
    folder: Path, damage: Any, error: type[CosdError], message: str
) -> None:
    damage(folder)
    with pytest.raises(error, match=message) as caught:
        resolve_source(folder)
    assert str(folder) in caught.value.message


def test_a_gguf_file_is_converted_once(tiny_gguf: Path, home: Path, recorder: Any) -> None:
    found = resolve_source(tiny_gguf, progress=recorder)
    assert found.name == "tiny-model"
    assert found.path.parent == home / "models"
    assert "de-quantise the weights" in dict(recorder.stages)
    recorder.stages.clear()
    assert resolve_source(tiny_gguf, progress=recorder) == found
    assert [name for name, _ in recorder.stages] == ["read the GGUF file"]
    (found.path / "model.safetensors").write_bytes(b"damaged")
    resolve_source(tiny_gguf)


@pytest.mark.parametrize("text", ["nonsense", "./nowhere", "/no/where", "a/b/c", "", "gemma3"])
def test_what_is_nothing_is_refused(text: str, home: Path) -> None:
    with pytest.raises((ModelFolderInvalid, TokenizerUnsupported)) as caught:
        resolve_source(text)
    assert "smollm2-135m" in caught.value.message or "config.json" in caught.value.message


@pytest.mark.parametrize("text", ["x" * 300, "~nobody-of-that-name/x"])
def test_what_cannot_be_looked_at_is_refused(text: str, home: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match="cannot be looked at"):
        resolve_source(text)


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelFolderInvalid, match="not a GGUF file"):
        resolve_source(tmp_path / "notes.txt")
