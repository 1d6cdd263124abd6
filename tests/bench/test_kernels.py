from __future__ import annotations

from pathlib import Path

from harness.random_models import CONTEXT, WIDTH, write_model

from bench.kernels import measure
from edge_sdk.draft.manifest import FileEntry, Manifest
from export.backend_registry import make_graph
from export.progress import NoProgress
from export.quantise import quantise_weights


def test_every_operator_of_a_step_is_counted_once(tmp_path: Path) -> None:
    write_model(tmp_path / "source", "Llama", tie_word_embeddings=True)
    graph, maker = make_graph(
        "fused", tmp_path / "source", tmp_path, context=CONTEXT, progress=NoProgress()
    )
    folder = tmp_path / "draft"
    folder.mkdir()
    quantise_weights(graph, folder / "model.onnx", bits=4, progress=NoProgress())
    Manifest(
        name="tiny",
        source="test",
        revision="",
        architecture="LlamaForCausalLM",
        graph="model.onnx",
        bits=4,
        context=CONTEXT,
        logits_width=WIDTH,
        vocabulary_fingerprint="0" * 64,
        roles={},
        prefix_ids=(),
        chat=None,
        files={path.name: FileEntry.of(path) for path in sorted(folder.iterdir())},
        backend=maker,
    ).write(folder)
    found = measure(folder, threads=1, steps=6)
    assert all(time >= 0 for _, time in found.values())
    calls = {name: count for name, (count, _) in found.items()}
    assert calls["GroupQueryAttention"] == 3
    assert calls["GatherBlockQuantized"] == calls["MatMulNBits, head"] == 1
    for layer in ("query, key, value", "attention output", "gate and up", "down"):
        assert calls[f"MatMulNBits, {layer}"] == 3
    assert not set(calls) & {"Cos", "Sin", "Range"}, "positions are made when a graph is loaded"
