from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from harness.random_models import CONTEXT, WIDTH, write_model
from onnx import TensorProto, helper, numpy_helper

from edge_sdk.draft.onnx_decoder import Decoder
from edge_sdk.draft.onnx_graph import DecoderGraph
from edge_sdk.draft.onnx_session import open_session
from edge_sdk.errors import UnsupportedModel
from export.backend_registry import make_graph
from export.progress import NoProgress
from export.pruned_graph import prune_head
from export.quantise import quantise_weights

KEEP = np.random.default_rng(7).permutation(WIDTH)[:200]
IDS = np.random.default_rng(8).integers(0, WIDTH, 30).tolist()
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "fused tied": ("fused", "Llama", {"tie_word_embeddings": True}),
    "fused untied": ("fused", "Llama", {}),
    "fused capped": (
        "fused",
        "Gemma2",
        {"head_dim": 16, "final_logit_softcapping": 3.0, "attn_logit_softcapping": None},
    ),
    "optimum tied": ("optimum", "Llama", {"tie_word_embeddings": True}),
    "optimum untied": ("optimum", "Llama", {}),
    "optimum gpt2": ("optimum", "GPT2", {"n_embd": 64, "n_head": 4, "n_layer": 2}),
}


@pytest.fixture(scope="module", params=KINDS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    backend, family, options = KINDS[request.param]
    work = tmp_path_factory.mktemp("work")
    write_model(work / "source", family, **options)
    graph, _ = make_graph(backend, work / "source", work, context=CONTEXT, progress=NoProgress())
    return graph


def decoder(graph: Path, width: int) -> Decoder:
    session = open_session(graph, threads=1, spin=False)
    read = DecoderGraph.read(session.get_inputs(), session.get_outputs())
    assert read.width == width
    return Decoder(session, read, width=width, context=CONTEXT)


def law(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(powers / powers.sum())


def test_the_same_law_on_the_tokens_that_are_kept(whole: Path, tmp_path: Path) -> None:
    pruned = prune_head(whole, tmp_path / "pruned.onnx", keep=KEEP, progress=NoProgress())
    full, part = decoder(whole, WIDTH), decoder(pruned, len(KEEP))
    for count in range(1, len(IDS) + 1):
        expected, row = full.extend([IDS[count - 1]])[KEEP], part.extend([IDS[count - 1]])
        assert np.abs(row - expected).max() <= 1e-4
        assert np.abs(law(row) - law(expected)).sum() <= 1e-4
    for running in (full, part):
        running.keep(3)
    assert np.abs(full.extend(IDS[:9])[KEEP] - part.extend(IDS[:9])).max() <= 1e-4


@pytest.mark.parametrize("bits", [4, 8, 16, 32])
def test_few_bits_round_the_head_as_without_pruning(whole: Path, tmp_path: Path, bits: int) -> None:
    pruned = prune_head(whole, tmp_path / "pruned.onnx", keep=KEEP, progress=NoProgress())
    rows, sizes = [], []
    for graph, width in ((whole, WIDTH), (pruned, len(KEEP))):
        out = tmp_path / f"{width}.onnx"
        quantise_weights(graph, out, bits=bits, progress=NoProgress(), sample=[IDS])
        rows.append(decoder(out, width).extend(IDS[:12]))
        sizes.append(out.with_name(f"{out.name}.data").stat().st_size)
    spread = float(np.ptp(rows[0]))
    assert np.abs(rows[0][KEEP] - rows[1]).max() < 2e-3 * spread
    assert sizes[1] <= sizes[0] + 4096 + 4 * WIDTH


def test_heads_that_cannot_be_pruned(tmp_path: Path) -> None:
    kind = TensorProto.FLOAT
    hidden = helper.make_tensor_value_info("x", kind, [1, "n", 4])
    logits = helper.make_tensor_value_info("logits", kind, [1, "n", 6])
    weight = numpy_helper.from_array(np.ones((4, 6), np.float32), "w")
    factors = numpy_helper.from_array(np.ones(6, np.float32), "f")
    scaled = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Mul", ["y", "f"], ["logits"]),
    ]
    plain = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Softmax", ["y"], ["logits"]),
    ]
    for nodes, word in ((scaled, "token by token"), (plain, "one matrix")):
        graph = helper.make_graph(nodes, "g", [hidden], [logits], [weight, factors])
        onnx.save(helper.make_model(graph), str(tmp_path / "in.onnx"))
        with pytest.raises(UnsupportedModel, match=word):
            prune_head(
                tmp_path / "in.onnx",
                tmp_path / "out.onnx",
                keep=np.arange(3),
                progress=NoProgress(),
            )


@pytest.mark.parametrize("keep", [[1, 1], [-1], [WIDTH], []])
def test_ids_that_cannot_be_kept(tmp_path: Path, keep: list[int], whole: Path) -> None:
    with pytest.raises(ValueError, match="ids to keep"):
        prune_head(
            whole, tmp_path / "out.onnx", keep=np.array(keep, np.int64), progress=NoProgress()
        )
