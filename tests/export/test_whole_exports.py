"""Sources of every kind through the real exporters, and sources that cannot be exported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.errors import (
    CosdError,
    InvalidRequest,
    ModelFolderInvalid,
    TokenizerUnsupported,
    UnsupportedModel,
    VocabularyMismatch,
)
from export import command, export_draft

IDS = [5, 17, 42, 99, 3, 7]

OWN_CODE = """
from transformers import LlamaForCausalLM

class OwnForCausalLM(LlamaForCausalLM):
    def forward(self, input_ids=None, attention_mask=None, position_ids=None,
                past_key_values=None, **more):
        output = super().forward(input_ids=input_ids, attention_mask=attention_mask,
                                 position_ids=position_ids, past_key_values=past_key_values, **more)
        output.logits = output.logits * 2
        return output
"""


@pytest.fixture
def source(tiny_checkpoint: Path, tmp_path: Path, home: Path) -> Path:
    """A random Llama with heads wide enough for the fused graph."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = tmp_path / "source"
    shutil.copytree(tiny_checkpoint, folder)
    config = AutoConfig.from_pretrained(tiny_checkpoint, head_dim=16)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def expected(folder: Path, **options: Any) -> np.ndarray:
    """Logits of transformers after each of `IDS`."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
    with torch.no_grad():
        return np.asarray(model(torch.tensor([IDS])).logits[0].numpy())


def computed(folder: Path) -> np.ndarray:
    with OnnxDraft.open(folder, threads=1) as draft:
        rows = []
        for token in IDS:
            draft.append([token])
            rows.append(draft.next_logits())
    return np.array(rows)


def test_shards(source: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    rows = expected(source)
    model = AutoModelForCausalLM.from_pretrained(source)
    (source / "model.safetensors").unlink()
    model.save_pretrained(source, max_shard_size="40KB")
    assert len(list(source.glob("model-*.safetensors"))) > 1
    assert export_draft(source, tmp_path / "draft", bits=32).backend == "fused"
    np.testing.assert_allclose(computed(tmp_path / "draft"), rows, atol=1e-4)


@pytest.mark.filterwarnings("ignore")  # of tracing, which optimum does here without us
def test_what_optimum_exported(tiny_checkpoint: Path, tmp_path: Path, home: Path) -> None:
    main_export = pytest.importorskip("optimum.exporters.onnx").main_export
    traced, out = tmp_path / "traced", tmp_path / "draft"
    main_export(
        str(tiny_checkpoint),
        output=str(traced),
        task="text-generation-with-past",
        do_validation=False,
    )
    assert not list(traced.glob("*.safetensors"))
    manifest = export_draft(traced, out, bits=32)
    assert (manifest.backend, manifest.architecture) == ("onnx", "LlamaForCausalLM")
    np.testing.assert_allclose(computed(out), expected(tiny_checkpoint), atol=1e-4)
    small = export_draft(traced, tmp_path / "small", bits=4)
    assert small.files["model.onnx.data"].bytes < manifest.files["model.onnx.data"].bytes
    graph = traced / "model.onnx"
    whole = graph.read_bytes()
    graph.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelFolderInvalid, match=r"model\.onnx is no readable ONNX graph"):
        export_draft(traced, tmp_path / "cut")


def test_an_onnx_graph_without_a_past(source: Path, tmp_path: Path) -> None:
    from harness.quick_backend import write_graph

    (source / "model.safetensors").unlink()
    write_graph(source, past=False)
    with pytest.raises(
        UnsupportedModel, match=r"decoder\.onnx takes no past keys and values.*optimum-cli"
    ):
        export_draft(source, tmp_path / "draft")


def test_code_of_the_model_is_what_is_exported(
    source: Path, tmp_path: Path, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optimum.exporters.onnx")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "m"))
    (source / "modeling_own.py").write_text(OWN_CODE)
    config = source / "config.json"
    auto_map = {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    config.write_text(json.dumps({**json.loads(config.read_text()), "auto_map": auto_map}))
    with pytest.raises(UnsupportedModel, match="--trust-remote-code"):
        export_draft(source, tmp_path / "draft")
    manifest = export_draft(
        source, tmp_path / "draft", bits=32, trust_remote_code=True, progress=recorder
    )
    rows = expected(source, trust_remote_code=True)
    np.testing.assert_allclose(computed(tmp_path / "draft"), rows, atol=1e-4)
    assert manifest.backend == "optimum", "the fused graph does not compute what this code does"
    assert any("fused is passed over" in note for note in recorder.notes)


def _config(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def _more_tokens(folder: Path) -> None:
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    document["model"]["vocab"]["one too many"] = 272
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (
            _config(model_type="warp", architectures=["WarpForCausalLM"]),
            UnsupportedModel,
            "WarpForCausalLM.*LlamaForCausalLM.*docs/export.md",
        ),
        (
            _config(model_type="rwkv", architectures=["RwkvForCausalLM"]),
            UnsupportedModel,
            "RwkvForCausalLM.*LlamaForCausalLM",
        ),
        (_config(is_encoder_decoder=True), UnsupportedModel, "encoder-decoder.*decoder-only"),
        (lambda f: (f / "tokenizer.json").unlink(), TokenizerUnsupported, "save_pretrained"),
        (_more_tokens, TokenizerUnsupported, "273|272"),
        (lambda f: (f / "model.safetensors").unlink(), ModelFolderInvalid, "no weights"),
    ],
    ids=["unknown", "not exported", "encoder-decoder", "no tokenizer", "wide", "no weights"],
)
def test_what_cannot_be_exported(
    source: Path, tmp_path: Path, damage: Any, error: type[CosdError], message: str
) -> None:
    damage(source)
    with pytest.raises(error, match=message):
        export_draft(source, tmp_path / "draft")
    assert sorted(path.name for path in tmp_path.iterdir()) in (["source"], ["home", "source"])


def test_out_is_there_already(source: Path, tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "manifest.json").write_text("{}")
    with pytest.raises(InvalidRequest, match=r"draft exists; choose another folder, or --force"):
        export_draft(source, str(tmp_path / "draft"))


def test_a_target_is_looked_at_first(
    source: Path, tmp_path: Path, recorder: Any, tiny_checkpoint: Path
) -> None:
    export_draft(source, tmp_path / "draft", target=str(tiny_checkpoint), bits=8, progress=recorder)
    assert any("tokens in common with the target tiny-llama, 100.0%" in n for n in recorder.notes)
    other = tmp_path / "other"
    shutil.copytree(tiny_checkpoint, other)
    path = other / "tokenizer.json"
    document = json.loads(path.read_text())
    vocab = document["model"]["vocab"]
    document["model"]["vocab"] = {f"ab{name}": token for name, token in vocab.items()}
    document["model"]["merges"] = []
    path.write_text(json.dumps(document))
    recorder.stages.clear()
    with pytest.raises(VocabularyMismatch, match="with the target other, the draft shares 0"):
        export_draft(source, tmp_path / "second", target=str(other), progress=recorder)
    assert {name for name, _ in recorder.stages} == {"read the weights"}
    assert not (tmp_path / "second").exists()


def test_a_page_after_the_export(source: Path, tmp_path: Path) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command.export)
    page = tmp_path / "page.html"
    arguments = [str(source), str(tmp_path / "draft"), "--html", str(page), "--bits", "8"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "8-bit weights" in page.read_text(encoding="utf-8")
