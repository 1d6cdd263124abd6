from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from edge_sdk.errors import ModelFolderInvalid, PreparationError, UnsupportedModel
from export.backends.optimum_backend import OptimumBackend
from export.external_data import read_tensor
from export.last_row import keep_last_row
from export.progress import NoProgress


def export(source: Path, work: Path) -> Path:
    return OptimumBackend().export(source, work, context=128, progress=NoProgress())


def run(session: Any, ids: list[int], past: dict[str, Any], start: int) -> dict[str, Any]:
    feeds: dict[str, Any] = {
        "input_ids": np.array([ids]),
        "attention_mask": np.ones((1, start + len(ids)), np.int64),
        "position_ids": np.arange(start, start + len(ids))[None],
    }
    for node in session.get_inputs():
        if node.name.startswith("past"):
            empty = np.zeros((1, node.shape[1], 0, node.shape[3]), np.float32)
            feeds[node.name] = past.get(node.name, empty)
    names = [node.name for node in session.get_outputs()]
    found = dict(zip(names, session.run(names, feeds), strict=True))
    return {name.replace("present", "past_key_values"): value for name, value in found.items()}


@pytest.fixture(scope="module")
def graph(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tiny_checkpoint, tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def reference(tiny_checkpoint: Path) -> Callable[[list[int]], np.ndarray]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint).eval()

    def logits(ids: list[int]) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(model(torch.tensor([ids])).logits[0, -1].numpy())

    return logits


def test_one_graph_prefills_and_continues(graph: Path, reference: Any) -> None:
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    ids = np.random.default_rng(0).integers(0, 259, 30).tolist()
    first = run(session, ids[:7], {}, 0)
    assert np.abs(first["logits"][0, -1] - reference(ids[:7])).max() < 1e-4
    many = run(session, ids[7:12], first, 7)
    assert np.abs(many["logits"][0, -1] - reference(ids[:12])).max() < 1e-4
    one = run(session, ids[12:13], many, 12)
    assert np.abs(one["logits"][0, -1] - reference(ids[:13])).max() < 1e-4
    cut = {name: value[:, :, :9] for name, value in one.items() if name != "logits"}
    again = run(session, ids[20:23], cut, 9)
    assert np.abs(again["logits"][0, -1] - reference(ids[:9] + ids[20:23])).max() < 1e-4


def test_only_the_last_row_of_logits(graph: Path) -> None:
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    assert session.get_outputs()[0].shape[1] == 1
    assert run(session, [1, 2, 3], {}, 0)["logits"].shape == (1, 1, 272)


def test_weights_lie_beside_the_graph_on_page_borders(graph: Path) -> None:
    model = onnx.load(str(graph), load_external_data=False)
    large = [t for t in model.graph.initializer if read_tensor(t, graph.parent).nbytes > 1024]
    assert large
    for tensor in large:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        assert (graph.parent / entries["location"]).is_file()
        assert int(entries["offset"]) % 4096 == 0


def test_a_graph_without_a_plain_head_is_left_alone() -> None:
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    value = helper.make_tensor_value_info("logits", kind, [1, "n", 4])
    taken = helper.make_tensor_value_info("x", kind, [1, "n", 4])
    node = helper.make_node("Softmax", ["x"], ["logits"])
    model = helper.make_model(helper.make_graph([node], "g", [taken], [value]))
    before = model.SerializeToString()
    assert not keep_last_row(model)
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    ("config", "error", "word"),
    [
        ({"model_type": "vit", "architectures": ["ViTModel"]}, UnsupportedModel, "ViTModel"),
        ({"model_type": "of-tomorrow"}, UnsupportedModel, "of-tomorrow"),
        ({"architectures": []}, ModelFolderInvalid, "config.json"),
        (None, ModelFolderInvalid, "config.json"),
    ],
    ids=["no text", "unknown", "untyped", "none"],
)
def test_models_that_cannot_be_exported(
    tmp_path: Path, config: Any, error: type[Exception], word: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    if config is not None:
        (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(error, match=word):
        export(source, tmp_path)


def test_a_folder_without_weights(tiny_checkpoint: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_bytes((tiny_checkpoint / "config.json").read_bytes())
    with pytest.raises(ModelFolderInvalid, match="not a readable model"):
        export(source, tmp_path)


def test_truncated_weights(tiny_checkpoint: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_bytes((tiny_checkpoint / "config.json").read_bytes())
    data = (tiny_checkpoint / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelFolderInvalid, match="not a readable model"):
        export(source, tmp_path)


def test_a_missing_exporter_names_the_extra(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without_optimum(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("optimum"):
            raise ImportError("No module named 'optimum'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without_optimum)
    with pytest.raises(PreparationError, match=r"edge-cosd\[export\]"):
        export(tiny_checkpoint, tmp_path)
