from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from edge_sdk.errors import InvalidRequest, UnsupportedModel
from export.blockwise import dequantise_blocks, quantise_blocks
from export.progress import NoProgress
from export.quantise import quantise_weights
from export.recipe import RECIPES, Rounding

IDS = np.array([[3, 250, 0, 41, 299]])
WIDTH, HIDDEN, POSITIONS = 300, 96, 64


def make_graph(
    path: Path, *, tied: bool, gemm: bool = False, constant: bool = True
) -> dict[str, Any]:
    """A model of an embedding, a position table, one square layer and a head."""
    random = np.random.default_rng(0)
    weights: dict[str, Any] = {
        "table": random.normal(size=(WIDTH, HIDDEN)).astype(np.float32),
        "positions": random.normal(size=(POSITIONS, HIDDEN)).astype(np.float32),
        "layer": (random.normal(size=(HIDDEN, HIDDEN)) / 10).astype(np.float32),
        "bias": random.normal(size=HIDDEN).astype(np.float32),
        "head": random.normal(size=(HIDDEN, WIDTH)).astype(np.float32),
        "flat": np.array([-1, HIDDEN], dtype=np.int64),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x0"]),
        helper.make_node("Gather", ["positions", "ids_positions"], ["p"]),
        helper.make_node("Add", ["x0", "p"], ["x1"]),
        helper.make_node("Reshape", ["x1", "flat"], ["x2"]),
    ]
    if gemm:
        nodes.append(helper.make_node("Gemm", ["x2", "layer", "bias"], ["x3"], transB=1))
    else:
        nodes.append(helper.make_node("MatMul", ["x2", "layer"], ["x3"]))
        del weights["bias"]
    if tied:
        nodes.append(helper.make_node("Transpose", ["table"], ["head"], perm=[1, 0]))
        del weights["head"]
    nodes.append(helper.make_node("MatMul", ["x3", "head"], ["logits"]))
    inputs = [
        helper.make_tensor_value_info("ids", T.INT64, [1, "n"]),
        helper.make_tensor_value_info("ids_positions", T.INT64, [1, "n"]),
    ]
    if not constant:
        inputs += [
            helper.make_tensor_value_info(name, T.FLOAT, weights.pop(name).shape)
            for name in ("layer", "head")
        ]
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [helper.make_tensor_value_info("logits", T.FLOAT, ["n", WIDTH])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(path),
    )
    return weights


def run(path: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    positions = np.arange(IDS.shape[1])[None]
    return np.asarray(session.run(["logits"], {"ids": IDS, "ids_positions": positions})[0])


def rounded(matrix: np.ndarray, rounding: Rounding) -> np.ndarray:
    block = rounding.block(matrix.shape[1])
    blocks = quantise_blocks(matrix, bits=rounding.bits, block=block)
    return dequantise_blocks(blocks, matrix.shape[1])


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("gemm", [True, False])
def test_the_operators_compute_with_the_rounded_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int, tied: bool, gemm: bool
) -> None:
    # Activations in fp32: comparable exactly.
    recipe = replace(RECIPES[bits], accuracy_level=0)
    monkeypatch.setitem(RECIPES, bits, recipe)
    weights = make_graph(tmp_path / "in.onnx", tied=tied, gemm=gemm)
    out = quantise_weights(
        tmp_path / "in.onnx", tmp_path / "out.onnx", bits=bits, progress=NoProgress()
    )
    table = rounded(weights["table"], recipe.head)
    head = table if tied else rounded(weights["head"].T, recipe.head)
    layer = weights["layer"] if gemm else weights["layer"].T
    hidden = (table[IDS[0]] + weights["positions"][: IDS.shape[1]]) @ rounded(layer, recipe.other).T
    if gemm:
        hidden += weights["bias"]
    assert np.abs(run(out) - hidden @ head.T).max() < 1e-3
    kinds = [node.op_type for node in onnx.load(str(out)).graph.node]
    assert kinds.count("MatMulNBits") == 2
    assert kinds.count("GatherBlockQuantized") == 1
    assert kinds.count("Gather") == 1  # positions keep their bits
    assert "Transpose" not in kinds


def test_bits_and_blocks_by_the_place_of_a_layer(tmp_path: Path) -> None:
    """Narrowing layers in 8 bits, though a layer inside is wider than the head."""
    random = np.random.default_rng(0)
    shapes = {"wide": (64, 96), "narrow": (96, 64), "wider": (64, 512), "back": (512, 64)}
    shapes["head"] = (64, 128)
    nodes, name = [], "x"
    for layer in shapes:
        after = "logits" if layer == "head" else f"{layer}_out"
        nodes.append(helper.make_node("MatMul", [name, layer], [after]))
        name = after
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("logits", T.FLOAT, ["n", 128])],
        [
            numpy_helper.from_array(random.normal(size=shape).astype(np.float32), layer)
            for layer, shape in shapes.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(tmp_path / "in.onnx"))
    four = [(4, 32), (8, 32), (4, 64), (8, 128), (4, 32)]
    for bits, expected in ((4, four), (8, [(8, size) for size in (64, 32, 64, 128, 64)])):
        out = quantise_weights(
            tmp_path / "in.onnx", tmp_path / "out.onnx", bits=bits, progress=NoProgress()
        )
        found = []
        for node in onnx.load(str(out)).graph.node:
            values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            found.append((values["bits"], values["block_size"]))
        assert found == expected


def test_a_tied_head_lies_in_the_file_once(tmp_path: Path) -> None:
    sizes = {}
    for tied in (True, False):
        make_graph(tmp_path / "in.onnx", tied=tied)
        out = quantise_weights(
            tmp_path / "in.onnx", tmp_path / f"{tied}.onnx", bits=4, progress=NoProgress()
        )
        sizes[tied] = out.with_name(f"{out.name}.data").stat().st_size
    assert sizes[False] - sizes[True] > WIDTH * HIDDEN / 2


def test_int8_activations_stay_close(tmp_path: Path) -> None:
    make_graph(tmp_path / "in.onnx", tied=True)
    exact = run(tmp_path / "in.onnx")
    errors = {}
    for bits in (4, 8):
        out = quantise_weights(
            tmp_path / "in.onnx", tmp_path / "out.onnx", bits=bits, progress=NoProgress()
        )
        errors[bits] = np.linalg.norm(run(out) - exact) / np.linalg.norm(exact)
    assert errors[8] < 0.02
    assert errors[8] < errors[4] < 0.15


def test_an_embedding_without_whole_blocks_keeps_its_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorder: Any
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "HIDDEN", 80)
    make_graph(tmp_path / "in.onnx", tied=True)
    exact = run(tmp_path / "in.onnx")
    out = quantise_weights(tmp_path / "in.onnx", tmp_path / "out.onnx", bits=8, progress=recorder)
    assert np.linalg.norm(run(out) - exact) / np.linalg.norm(exact) < 0.02
    kinds = [node.op_type for node in onnx.load(str(out)).graph.node]
    assert kinds.count("Gather") == 2
    assert recorder.amounts == [total for _, total in recorder.stages]


def test_16_bits_halve_the_file_and_round_to_fp16(tmp_path: Path) -> None:
    make_graph(tmp_path / "in.onnx", tied=False)
    full = quantise_weights(
        tmp_path / "in.onnx", tmp_path / "full.onnx", bits=32, progress=NoProgress()
    )
    half = quantise_weights(full, tmp_path / "half.onnx", bits=16, progress=NoProgress())
    assert np.array_equal(run(full), run(tmp_path / "in.onnx"))
    difference = np.abs(run(half) - run(full)).max()
    assert 0 < difference < 0.1
    bytes_full = (tmp_path / "full.onnx.data").stat().st_size
    assert (tmp_path / "half.onnx.data").stat().st_size < 0.6 * bytes_full


def test_weights_too_large_for_fp16(tmp_path: Path) -> None:
    make_graph(tmp_path / "in.onnx", tied=False)
    model = onnx.load(str(tmp_path / "in.onnx"))
    (layer,) = (t for t in model.graph.initializer if t.name == "layer")
    layer.CopyFrom(numpy_helper.from_array(np.full((HIDDEN, HIDDEN), 1e5, np.float32), "layer"))
    onnx.save(model, str(tmp_path / "in.onnx"))
    with pytest.raises(UnsupportedModel, match="layer"):
        quantise_weights(
            tmp_path / "in.onnx", tmp_path / "out.onnx", bits=16, progress=NoProgress()
        )


@pytest.mark.parametrize("bits", [0, 2, 5, 64])
def test_other_bits(tmp_path: Path, bits: int) -> None:
    with pytest.raises(InvalidRequest, match="4, 8, 16, 32"):
        quantise_weights(tmp_path / "in", tmp_path / "out", bits=bits, progress=NoProgress())


def test_a_graph_without_constant_weights(tmp_path: Path) -> None:
    make_graph(tmp_path / "in.onnx", tied=False, constant=False)
    with pytest.raises(UnsupportedModel, match="no linear layer"):
        quantise_weights(tmp_path / "in.onnx", tmp_path / "out.onnx", bits=4, progress=NoProgress())


@pytest.mark.parametrize("bits", [4, 8, 16, 32])
def test_progress_ends_at_its_total(tmp_path: Path, recorder: Any, bits: int) -> None:
    make_graph(tmp_path / "in.onnx", tied=True)
    quantise_weights(tmp_path / "in.onnx", tmp_path / "out.onnx", bits=bits, progress=recorder)
    assert recorder.amounts == [total for _, total in recorder.stages]


def test_layout_is_that_of_the_operators_own_quantiser() -> None:
    from onnxruntime.capi._pybind_state import quantize_matmul_4bits

    weights = np.random.default_rng(1).normal(size=(24, 64)).astype(np.float32)
    packed = np.zeros((24, 2, 16), np.uint8)
    scales = np.zeros((24, 2), np.float32)
    zero = np.zeros((24, 1), np.uint8)
    transposed = np.ascontiguousarray(weights.T)
    quantize_matmul_4bits(packed, transposed, scales, zero, 32, 24, 64, True)
    theirs = quantise_blocks(weights, bits=4, block=32)
    theirs = type(theirs)(packed, scales, 4, 32)
    ours = quantise_blocks(weights, bits=4, block=32)
    error_theirs = np.square(dequantise_blocks(theirs, 64) - weights).sum()
    error_ours = np.square(dequantise_blocks(ours, 64) - weights).sum()
    assert error_ours < error_theirs < 0.02 * np.square(weights).sum()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("inputs", [32, 40, 96])
def test_rounding_is_within_half_a_step(bits: int, inputs: int) -> None:
    weights = np.random.default_rng(2).normal(size=(2000, inputs)).astype(np.float32)
    weights[3] = 0.0
    blocks = quantise_blocks(weights, bits=bits, block=32)
    wide = dequantise_blocks(blocks, inputs)
    assert wide.shape == weights.shape
    assert np.all(wide[3] == 0.0)
    if bits == 8:
        steps = np.abs(blocks.scales).repeat(32, axis=1)[:, :inputs]
        assert np.all(np.abs(wide - weights) <= 1.2 * steps)
    assert np.linalg.norm(wide - weights) / np.linalg.norm(weights) < {4: 0.12, 8: 0.008}[bits]
