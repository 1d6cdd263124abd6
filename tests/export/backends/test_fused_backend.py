from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from harness.random_models import CONTEXT, WIDTH, write_model

from edge_sdk.draft import onnx_cache
from edge_sdk.draft.onnx_decoder import Decoder
from edge_sdk.draft.onnx_graph import DecoderGraph
from edge_sdk.draft.onnx_session import open_session
from edge_sdk.errors import ModelFolderInvalid, UnsupportedModel
from export.backend_registry import make_graph
from export.backends.fused_backend import FusedBackend
from export.backends.fused_graph import FusedGraph
from export.progress import NoProgress
from export.quantise import quantise_weights
from export.recipe import RECIPES

BOUND = 2e-5
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 40,
}
VICUNA = {"hidden_size": 192, "intermediate_size": 288, "num_hidden_layers": 2}
CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
GEMMA3 = {
    "head_dim": 32,
    "num_key_value_heads": 1,
    "sliding_window": 9,
    "query_pre_attn_scalar": 20,
    "rope_theta": 1e6,
    "rope_local_base_freq": 100.0,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "_sliding_window_pattern": 2,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "tied": ("Llama", {"tie_word_embeddings": True}),
    "many-key-heads": ("Llama", {"num_key_value_heads": 4}),
    "biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "wide-heads": ("Llama", {"head_dim": 32}),
    "linear-rope": ("Llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    "llama3-rope": ("Llama", {"rope_scaling": LLAMA3}),
    "yarn-rope": ("Llama", {"rope_scaling": YARN}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral-window": ("Mistral", {"sliding_window": 9}),
    "qwen2": ("Qwen2", {}),
    "qwen2-windows": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3-wide": ("Qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "smollm2": ("Llama", {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 144}),
    "tinyllama": ("Llama", {"num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 16}),
    "vicuna-68m": ("Llama", {"num_attention_heads": 12, "num_key_value_heads": 12} | VICUNA),
    "gelu": ("Llama", {"hidden_act": "gelu"}),
    "gemma": ("Gemma", {"head_dim": 32, "num_key_value_heads": 1}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 7, "query_pre_attn_scalar": 20} | CAPS),
    "gemma3": ("Gemma3", GEMMA3),
    "gemma3-far": ("Gemma3", GEMMA3 | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
}


@dataclass(frozen=True)
class Made:
    """A random model and its fused graph in fp32."""

    model: Any
    source: Path
    graph: Path

    def logits(self, ids: list[int]) -> np.ndarray:
        import torch

        with torch.no_grad():
            return np.asarray(self.model(torch.tensor([ids])).logits[0, -1].numpy())


def needs(backend: str) -> None:
    """Skip where optimum's exporter cannot be: beside transformers 5."""
    import transformers

    if backend == "optimum" and int(transformers.__version__.split(".")[0]) >= 5:
        pytest.skip("optimum's exporter needs transformers below 4.58")


def difference(row: np.ndarray, exact: np.ndarray) -> float:
    """Largest difference of two logits, relative to the spread of the row."""
    return float(np.abs(row - exact).max() / (exact.max() - exact.min()))


def decoder(graph: Path, context: int = CONTEXT) -> Decoder:
    session = open_session(graph, threads=1, spin=False)
    read = DecoderGraph.read(session.get_inputs(), session.get_outputs())
    return Decoder(session, read, width=WIDTH, context=context)


def export(source: Path, work: Path) -> Path:
    return FusedBackend().export(source, work, context=CONTEXT, progress=NoProgress())


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    family, options = FAMILIES[request.param]
    source, work = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("work")
    model = write_model(source, family, **options)
    return Made(model, source, export(source, work))


def test_logits_are_those_of_transformers_at_every_length(made: Made) -> None:
    ids = np.random.default_rng(1).integers(0, WIDTH, 48).tolist()
    stepping = decoder(made.graph)
    for count in range(1, len(ids) + 1):
        row = stepping.extend([ids[count - 1]])
        assert difference(row, made.logits(ids[:count])) < BOUND


def test_rewinds_passes_of_many_tokens_and_growth(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_cache, "_FIRST_SHARED_ROWS", 16)
    random = np.random.default_rng(2)
    running = decoder(made.graph)
    text: list[int] = []
    longest = 0
    for _ in range(40):
        kept = int(random.integers(max(0, len(text) - 9), len(text) + 1))
        del text[kept:]
        running.keep(kept)
        new = random.integers(0, WIDTH, random.integers(1, 20)).tolist()
        new = new[: CONTEXT - len(text)] or [text.pop()]
        running.keep(len(text))
        text += new
        row = running.extend(new)
        assert difference(row, made.logits(text)) < BOUND
        longest = max(longest, len(text))
    assert longest > 64, "the buffers must have grown more than once"


def test_positions_of_long_texts(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 1, "max_position_embeddings": 3000, "rope_theta": 1e5}
    model = write_model(tmp_path / "source", "Llama", **sizes)
    backend = FusedBackend()
    graph = backend.export(tmp_path / "source", tmp_path, context=3000, progress=NoProgress())
    ids = np.random.default_rng(6).integers(0, WIDTH, 3000).tolist()
    running = decoder(graph, context=3000)
    while running.length < len(ids):
        row = running.extend(ids[running.length : running.length + 250])
    made = Made(model, tmp_path, graph)
    assert difference(row, made.logits(ids)) < BOUND


def test_the_graph_is_small_and_gives_one_row(made: Made) -> None:
    model = onnx.load(str(made.graph), load_external_data=False)
    kinds = [node.op_type for node in model.graph.node]
    layers = made.model.config.num_hidden_layers
    assert kinds.count("GroupQueryAttention") == layers
    assert len(kinds) <= 22 * layers + 24
    logits = next(value for value in model.graph.output if value.name == "logits")
    assert [size.dim_value for size in logits.type.tensor_type.shape.dim] == [1, 1, WIDTH]


@pytest.mark.parametrize("made", ["biases", "mistral-window", "gemma3"], indirect=True)
@pytest.mark.parametrize("bits", [4, 8])
def test_few_bits_round_as_on_the_other_graph(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int, recorder: Any
) -> None:
    """The same weights, so the laws differ only by the rounding of activations to 8 bits."""
    needs("optimum")
    # Packed layers are wider: query, key and value, gate and up.
    monkeypatch.setitem(RECIPES, 4, replace(RECIPES[4], widening=RECIPES[4].other))
    rows = []
    ids = np.random.default_rng(3).integers(0, WIDTH, 12).tolist()
    for backend in ("fused", "optimum"):
        folder = tmp_path / backend
        folder.mkdir()
        graph, _ = make_graph(backend, made.source, folder, context=CONTEXT, progress=NoProgress())
        small = quantise_weights(graph, folder / "small.onnx", bits=bits, progress=recorder)
        rows.append(decoder(small).extend(ids))
    spread = rows[0].max() - rows[0].min()
    assert np.abs(rows[0] - rows[1]).max() < 0.02 * spread


@pytest.mark.parametrize("made", ["tied", "gemma3"], indirect=True)
def test_16_bits_round_weights_and_no_positions(made: Made, tmp_path: Path) -> None:
    half = quantise_weights(made.graph, tmp_path / "half.onnx", bits=16, progress=NoProgress())
    ids = np.random.default_rng(4).integers(0, WIDTH, 12).tolist()
    row, exact = decoder(half).extend(ids), made.logits(ids)
    assert 0 < np.abs(row - exact).max() < 0.01 * (exact.max() - exact.min())
    tensors = onnx.load(str(half), load_external_data=False).graph.initializer
    kinds = {tensor.name: tensor.data_type for tensor in tensors}
    assert kinds["rotation.0.frequencies"] == onnx.TensorProto.FLOAT
    assert kinds["embedding_fp16"] == onnx.TensorProto.FLOAT16


@pytest.mark.parametrize(
    ("family", "options", "word"),
    [
        ("Llama", {"hidden_act": "tanh"}, "tanh"),
        ("Llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        ("Olmo2", {}, "Olmo2ForCausalLM"),
        ("Gemma3", GEMMA3 | {"use_bidirectional_attention": True}, "later tokens"),
    ],
)
def test_what_it_cannot_do_exactly(
    tmp_path: Path, family: str, options: dict[str, Any], word: str
) -> None:
    write_model(tmp_path / "source", family, **options)
    with pytest.raises(UnsupportedModel, match=word):
        export(tmp_path / "source", tmp_path)


def test_weights_that_are_quantised_already(tmp_path: Path) -> None:
    write_model(tmp_path / "source", "Llama")
    path = tmp_path / "source" / "config.json"
    quantised = {"quant_method": "gptq", "bits": 4}
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": quantised}))
    with pytest.raises(UnsupportedModel, match="quantised already"):
        export(tmp_path / "source", tmp_path)


def test_folders_that_hold_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match=r"config\.json"):
        export(tmp_path, tmp_path)
    write_model(tmp_path / "source", "Llama")
    (tmp_path / "source" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(ModelFolderInvalid, match="not a readable model"):
        export(tmp_path / "source", tmp_path)


@pytest.mark.parametrize("backend", ["fused", "optimum"])
@pytest.mark.parametrize("missing", [True, False])
def test_weights_that_are_missing_or_too_many(tmp_path: Path, backend: str, missing: bool) -> None:
    from safetensors.torch import load_file, save_file

    needs(backend)
    write_model(tmp_path / "source", "Llama")
    path = tmp_path / "source" / "model.safetensors"
    weights = load_file(path)
    taken = weights["model.layers.1.mlp.up_proj.weight"].clone()
    if missing:
        del weights["model.layers.1.mlp.up_proj.weight"]
    else:
        weights["model.layers.7.mlp.up_proj.weight"] = taken
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ModelFolderInvalid, match=rf"layers\.{1 if missing else 7}\.mlp\.up_proj"):
        make_graph(backend, tmp_path / "source", tmp_path, context=CONTEXT, progress=NoProgress())


BREAK: dict[str, Callable[[Any], None]] = {
    "scale": lambda shape: object.__setattr__(shape, "epsilon", 0.5),
    "window": lambda shape: object.__setattr__(shape, "windows", (4, 4, 4)),
    "rotation": lambda shape: object.__setattr__(shape.rotations[0], "factor", 0.9),
}


@pytest.mark.parametrize("fault", BREAK)
def test_a_graph_that_computes_something_else_is_not_given_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    write_model(tmp_path / "source", "Llama")
    build = FusedGraph.build

    def broken(self: Any) -> Any:
        BREAK[fault](self._shape)
        return build(self)

    monkeypatch.setattr(FusedGraph, "build", broken)
    with pytest.raises(UnsupportedModel, match="does not compute what the model computes"):
        export(tmp_path / "source", tmp_path)


def test_auto_takes_the_fused_graph_and_says_so(tmp_path: Path, recorder: Any) -> None:
    write_model(tmp_path / "source", "Llama")
    _, maker = make_graph("auto", tmp_path / "source", tmp_path, context=CONTEXT, progress=recorder)
    assert maker == "fused"
    assert any("backend fused" in note for note in recorder.notes)


def test_auto_falls_back_where_the_runtime_refuses_the_graph(tmp_path: Path, recorder: Any) -> None:
    needs("optimum")
    write_model(tmp_path / "source", "Llama", head_dim=12)
    _, maker = make_graph("auto", tmp_path / "source", tmp_path, context=CONTEXT, progress=recorder)
    assert maker == "optimum"
    assert any("does not run the fused graph" in note for note in recorder.notes)


def test_auto_falls_back_and_says_why(tmp_path: Path, recorder: Any) -> None:
    needs("optimum")
    write_model(tmp_path / "source", "Llama", hidden_act="relu")
    graph, maker = make_graph(
        "auto", tmp_path / "source", tmp_path, context=CONTEXT, progress=recorder
    )
    assert maker == "optimum"
    assert graph.is_file()
    assert any("fused is passed over" in note and "relu" in note for note in recorder.notes)
