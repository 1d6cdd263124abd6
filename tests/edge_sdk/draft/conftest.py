"""Tiny decoders on onnxruntime: random Llama and Gemma exported once, and hand-made graphs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.draft.manifest import FileEntry, Manifest
from edge_sdk.vocab import read_tokenizer

WIDTH = 272  # 256 bytes, 4 words, 1 special token, padding
CONTEXT = 384


def write_tokenizer(folder: Path, *, first_word: str = "the") -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", first_word, "Ġt", "12"]
    merges = [("t", "h"), ("th", "e"), ("Ġ", "t"), ("1", "2")]
    if first_word != "the":
        merges[1] = ("th", first_word[-1])
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_manifest(folder: Path, **changes: Any) -> None:
    """The manifest of a folder with `model.onnx` and `tokenizer.json`."""
    width = changes.get("logits_width", WIDTH)
    vocabulary = read_tokenizer(folder / "tokenizer.json", width=width)
    (folder / "manifest.json").unlink(missing_ok=True)
    facts: dict[str, Any] = {
        "name": "tiny",
        "source": "test",
        "revision": "",
        "architecture": "LlamaForCausalLM",
        "graph": "model.onnx",
        "bits": 32,
        "context": CONTEXT,
        "logits_width": width,
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "roles": {role.value: tuple(ids) for role, ids in vocabulary.roles.items()},
        "prefix_ids": (),
        "chat": None,
        "files": {path.name: FileEntry.of(path) for path in folder.iterdir() if path.is_file()},
        "backend": "test",
    }
    Manifest(**{**facts, **changes}).write(folder)


@dataclass(frozen=True)
class Exported:
    """A random model in torch, and the folder of its export."""

    model: Any
    folder: Path

    def logits(self, ids: list[int]) -> np.ndarray:
        """Logits [V] after `ids`, by transformers."""
        import torch

        with torch.no_grad():
            return np.asarray(self.model(torch.tensor([ids])).logits[0, -1].numpy())


def _config(kind: str) -> Any:
    from transformers import Gemma3TextConfig, LlamaConfig

    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": WIDTH,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.2,
        "bos_token_id": 260,
        "eos_token_id": 260,
        "pad_token_id": 260,
    }
    if kind != "gemma3":
        return LlamaConfig(**sizes)
    return Gemma3TextConfig(
        **{**sizes, "num_key_value_heads": 1},
        head_dim=16,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    )


@pytest.fixture(scope="session", params=["llama", "gemma3", "fused"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    import torch
    from transformers import AutoModelForCausalLM

    from export.backend_registry import make_graph
    from export.progress import NoProgress
    from export.quantise import quantise_weights

    source = tmp_path_factory.mktemp(f"{request.param}-source")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(_config(request.param)).eval()
    model.save_pretrained(source)
    graph, _ = make_graph(
        "fused" if request.param == "fused" else "optimum",
        source,
        tmp_path_factory.mktemp(f"{request.param}-work"),
        context=CONTEXT,
        progress=NoProgress(),
    )
    folder = tmp_path_factory.mktemp(f"{request.param}-draft")
    quantise_weights(graph, folder / "model.onnx", bits=32, progress=NoProgress())
    write_tokenizer(folder)
    write_manifest(folder)
    return Exported(model, folder)


def bag_graph(
    path: Path,
    *,
    width: int = WIDTH,
    names: tuple[str, str] = ("past_key_values.0.key", "present.0.key"),
    half: bool = False,
    ids: str = "int64",
    extra: str | None = None,
    head: int = 4,
    axis: int = 2,
    value: float | None = None,
) -> None:
    """Write a decoder whose logits are a linear map of the sum of all embeddings, which is
    what its only cache tensor holds: [1, 2, past, head], or [1, past, 2, head] with axis 1."""
    import onnx
    from onnx import TensorProto as T
    from onnx import helper, numpy_helper

    random = np.random.default_rng(0)
    kind = T.FLOAT16 if half else T.FLOAT
    dtype = np.float16 if half else np.float32
    table = random.normal(size=(width, 2 * head)).astype(dtype)
    weight = random.normal(size=(2 * head, width)).astype(dtype)
    if value is not None:
        weight[0, 0] = value
    shape: list[str | int | None] = (
        ["batch", 2, "past", head] if axis == 2 else [1, "past", 2, head]
    )
    grown = [name if name != "past" else "total" for name in shape]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["embedded"]),
        helper.make_node("Reshape", ["embedded", "split"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["heads"], perm=[0, 2, 1, 3])
        if axis == 2
        else helper.make_node("Identity", ["rows"], ["heads"]),
        helper.make_node("Concat", [names[0], "heads"], [names[1]], axis=axis),
        helper.make_node("ReduceSum", [names[1], "axes"], ["summed"], keepdims=0),
        helper.make_node("Reshape", ["summed", "flat"], ["state"]),
        helper.make_node("MatMul", ["state", "weight"], ["logits"]),
    ]
    inputs = [
        helper.make_tensor_value_info(
            "input_ids", T.INT32 if ids == "int32" else T.INT64, ["batch", "n"]
        ),
        helper.make_tensor_value_info(names[0], kind, shape),
    ]
    if extra is not None:
        inputs.append(helper.make_tensor_value_info(extra, T.INT64, ["batch", "n"]))
    graph = helper.make_graph(
        nodes,
        "bag",
        inputs,
        [
            helper.make_tensor_value_info("logits", kind, ["batch", 1, width]),
            helper.make_tensor_value_info(names[1], kind, grown),
        ],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(weight, "weight"),
            numpy_helper.from_array(np.array([1, -1, 2, head], dtype=np.int64), "split"),
            numpy_helper.from_array(np.array([axis], dtype=np.int64), "axes"),
            numpy_helper.from_array(np.array([1, 1, 2 * head], dtype=np.int64), "flat"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(
        model,
        str(path),
        save_as_external_data=True,
        location=f"{path.name}.data",
        size_threshold=4096,
    )


@pytest.fixture
def bag_folder(tmp_path: Path) -> Callable[..., Path]:
    """Makes a draft folder around `bag_graph`."""

    def make(*, manifest: dict[str, Any] | None = None, **options: Any) -> Path:
        folder = tmp_path / "bag"
        folder.mkdir()
        bag_graph(folder / "model.onnx", **options)
        write_tokenizer(folder)
        write_manifest(folder, **{"logits_width": options.get("width", WIDTH), **(manifest or {})})
        return folder

    return make


@pytest.fixture
def rewrite_manifest() -> Callable[..., None]:
    """Changes entries of a written manifest as JSON."""

    def rewrite(folder: Path, **changes: Any) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return rewrite


@pytest.fixture
def remake_manifest() -> Callable[..., None]:
    return write_manifest


@pytest.fixture
def remake_tokenizer() -> Callable[..., None]:
    return write_tokenizer
