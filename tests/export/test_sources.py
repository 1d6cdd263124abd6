from __future__ import annotations

import json
import re
import shutil
import sys
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
from export.supported import traced_model_types


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


@pytest.fixture
def shards(folder: Path) -> list[Path]:
    """The weights of the folder as shards."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="40KB")
    return sorted(folder.glob("model-*.safetensors"))


def test_whole_shards(folder: Path, shards: list[Path], tiny_checkpoint: Path) -> None:
    checkpoint = resolve_source(folder).checkpoint
    assert len(shards) > 1
    assert list(checkpoint.weights) == shards
    assert checkpoint.parameters == resolve_source(tiny_checkpoint).checkpoint.parameters > 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f.unlink(), "No such file"),
        (_truncate, "bytes instead of"),
        (lambda f: f.write_bytes(b""), "unpack"),
        (lambda f: shutil.copy(min(f.parent.glob("model-*")), f), "it lacks"),
    ],
    ids=["missing", "truncated", "empty", "another"],
)
def test_a_damaged_shard_is_named(
    folder: Path, shards: list[Path], damage: Any, message: str
) -> None:
    damage(shards[-1])
    with pytest.raises(ModelFolderInvalid, match=message) as caught:
        resolve_source(folder)
    assert str(shards[-1]) in caught.value.message


@pytest.mark.parametrize("text", ["{}", "[]", '{"weight_map": {}}', "not json"])
def test_a_damaged_index_is_named(folder: Path, shards: list[Path], text: str) -> None:
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelFolderInvalid, match=r"index\.json has .* weight_map"):
        resolve_source(folder)


def test_code_of_the_model_needs_a_word(folder: Path) -> None:
    _config(folder, auto_map={"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"})
    with pytest.raises(UnsupportedModel, match=r"modeling_own.*--trust-remote-code") as caught:
        resolve_source(folder)
    assert "read as LlamaForCausalLM" in caught.value.message
    assert resolve_source(folder, trust_remote_code=True).checkpoint.model_type == "llama"
    _config(folder, model_type="own", architectures=["OwnForCausalLM"])
    with pytest.raises(UnsupportedModel, match="--trust-remote-code"):
        resolve_source(folder)
    trusted = resolve_source(folder, trust_remote_code=True).checkpoint
    assert trusted.architecture == "OwnForCausalLM"


def test_an_unknown_architecture_is_named_with_what_is_supported(folder: Path) -> None:
    _config(folder, model_type="warp", architectures=["WarpForCausalLM"])
    with pytest.raises(UnsupportedModel) as caught:
        resolve_source(folder)
    traced = ["gpt2"] if traced_model_types() else []
    for word in ("'warp'", "WarpForCausalLM", "LlamaForCausalLM", "Qwen3ForCausalLM", *traced):
        assert word in caught.value.message
    assert "marian" not in caught.value.message


def test_an_encoder_decoder_is_refused_without_loading_transformers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _config(folder, is_encoder_decoder=True)
    monkeypatch.setitem(sys.modules, "transformers.models.auto.modeling_auto", None)
    with pytest.raises(UnsupportedModel, match="encoder-decoder"):
        resolve_source(folder)


def test_settings_have_a_digest_of_their_own(folder: Path) -> None:
    checkpoint = resolve_source(folder).checkpoint
    settings, weights = checkpoint.settings_sha256(), checkpoint.weights_sha256()
    _config(folder, rope_theta=5.0)
    assert checkpoint.settings_sha256() != settings
    assert checkpoint.weights_sha256() == weights


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda f: shutil.rmtree(f), ModelFolderInvalid, "does not exist"),
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


@pytest.mark.parametrize("text", ["/no/where", "./owner", "~/no/where", "x.gguf", "a/x.gguf"])
def test_a_path_to_nothing_does_not_exist(text: str, home: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match=f"'{re.escape(text)}' does not exist"):
        resolve_source(text)


@pytest.mark.parametrize("text", ["x" * 300, "~nobody-of-that-name/x"])
def test_what_cannot_be_looked_at_is_refused(text: str, home: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match="cannot be looked at"):
        resolve_source(text)


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelFolderInvalid, match="not a GGUF file"):
        resolve_source(tmp_path / "notes.txt")
