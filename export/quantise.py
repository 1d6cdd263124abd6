"""Weights of an fp32 ONNX decoder in fewer bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from edge_sdk.errors import InvalidRequest, UnsupportedModel
from export.blockwise import BlockwiseWeights, quantise_blocks
from export.external_data import ExternalData, read_tensor
from export.progress import Progress, Stage

BITS = (4, 8, 16, 32)
# Measured on SmolLM2-135M (fused graph, one thread, context 64): the time of a decode step,
# and by how much the overlap sum min(p, q) with Gemma 3 270M at temperature 0.7 is below the
# 0.600 that the draft has in fp32 (432 positions, standard error 0.008).
#   6.6 ms  -0.027  as below, but narrowing layers in 4 bits too
#   6.8 ms  -0.008  as below
#   5.9 ms  -0.057  blocks of 64          5.6 ms  -0.059  head and embedding in 4 bits
#   8.7 ms          all in 8 bits         119 ms  -0.025  activations in fp32 (accuracy level 0)
BLOCK = 32
ACCURACY_LEVEL = 4
HEAD_BITS = 8
# Layers from another width back to that of the hidden states (the second of a gated pair): few,
# and the ones that lose most; attention in 8 bits instead gains nothing.
NARROWING_BITS = 8
_MICROSOFT = "com.microsoft"


def quantise_weights(graph: Path, out: Path, *, bits: int, progress: Progress) -> Path:
    """Write a decoder graph with the weights of its linear layers in fewer bits.

    With 4 and 8 bits linear layers become MatMulNBits (symmetric blocks of `BLOCK`, weights
    only) and the embedding GatherBlockQuantized. Layers from another width back to that of the
    head's input take at least `NARROWING_BITS`. Head and embedding take `HEAD_BITS` in both
    cases, and share their bytes in the file where they are tied. With 16 bits weights are
    stored in fp16 and widened when the model is loaded: the file is half as large, speed and
    memory are those of fp32. With 32 bits they are copied.

    Args:
        graph: fp32 graph, weights inside or beside it.
        out: graph file to write; its weights go to `<out>.data` beside it.
        bits: 4, 8, 16 or 32.
        progress: one stage that counts bytes of fp32 weights.

    Returns:
        `out`.

    Raises:
        InvalidRequest: another number of bits.
        UnsupportedModel: no linear layer of the graph has constant weights.
    """
    if bits not in BITS:
        raise InvalidRequest(
            f"{bits} bits a weight are not supported; use one of {', '.join(map(str, BITS))}",
            field="bits",
        )
    model = onnx.load(str(graph), load_external_data=False)
    total = sum(_bytes(tensor) for tensor in model.graph.initializer)
    with (
        progress.stage(f"writing weights in {bits} bits", total) as stage,
        ExternalData(out) as data,
    ):
        rewriter = _Rewriter(model, graph.parent, data, stage)
        if bits in (4, 8):
            rewriter.quantise(bits)
        rewriter.copy(narrow=bits == 16)
    onnx.save(model, str(out))
    return out


@dataclass(frozen=True, slots=True)
class _Linear:
    """A linear layer: where its node is, and its constant weight."""

    index: int
    weight: str
    transposed: bool  # the weight lies as [N, K]


class _Rewriter:
    """Replaces the nodes and initializers of one model."""

    def __init__(self, model: ModelProto, folder: Path, data: ExternalData, stage: Stage) -> None:
        self._model = model
        self._nodes = model.graph.node
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._folder = folder
        self._data = data
        self._stage = stage
        self._written: list[TensorProto] = []
        self._done: set[str] = set()
        self._blocks: dict[tuple[str, bool], tuple[TensorProto, TensorProto, int, int]] = {}

    def quantise(self, bits: int) -> None:
        transposes = {
            node.output[0]: node.input[0]
            for node in self._nodes
            if node.op_type == "Transpose" and self._is_matrix(node.input[0])
        }
        linears = [
            linear
            for index, node in enumerate(self._nodes)
            if (linear := self._linear(index, node, transposes)) is not None
        ]
        if not linears:
            raise UnsupportedModel(
                "no linear layer of the graph has constant weights, so there is nothing to "
                "store in fewer bits; export with 32 bits"
            )
        heads = self._heads(linears)
        rows = {self._outputs(linear) for linear in heads}
        states = {self._inputs(linear) for linear in heads}
        replaced = {}
        for linear in linears:
            chosen = bits
            if linear in heads:
                chosen = HEAD_BITS
            elif self._outputs(linear) in states and self._inputs(linear) not in states:
                chosen = max(bits, NARROWING_BITS)
            replaced[linear.index] = self._matmul(linear, chosen)
        for index, node in enumerate(self._nodes):
            if self._is_embedding(node, rows):
                replaced[index] = [self._gather(node, HEAD_BITS)]
        nodes = [
            new for index, node in enumerate(self._nodes) for new in replaced.get(index, [node])
        ]
        used = {name for node in nodes if node.op_type != "Transpose" for name in node.input}
        used |= {output.name for output in self._model.graph.output}
        nodes = [node for node in nodes if node.op_type != "Transpose" or node.output[0] in used]
        used = {name for node in nodes for name in node.input}
        del self._nodes[:]
        self._nodes.extend(nodes)
        for name in [name for name in self._tensors if name not in used]:
            del self._tensors[name]
        if all(entry.domain != _MICROSOFT for entry in self._model.opset_import):
            self._model.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))

    def copy(self, *, narrow: bool) -> None:
        """Write what is left of the initializers, matrices in fp16 if `narrow`."""
        casts = []
        # Cosines and sines of positions are no weights.
        exact = {
            name
            for node in self._nodes
            if node.op_type == "GroupQueryAttention"
            for name in node.input
        }
        for name, tensor in self._tensors.items():
            values = read_tensor(tensor, self._folder)
            if narrow and self._is_matrix(name) and name not in exact:
                half = f"{name}_fp16"
                self._written.append(self._data.add(half, _as_fp16(name, values)))
                casts.append(helper.make_node("Cast", [half], [name], to=TensorProto.FLOAT))
            else:
                self._written.append(self._data.add(name, values))
            self._advance(name)
        for cast in reversed(casts):
            self._nodes.insert(0, cast)
        del self._model.graph.initializer[:]
        self._model.graph.initializer.extend(self._written)

    def _is_matrix(self, name: str) -> bool:
        tensor = self._tensors.get(name)
        return (
            tensor is not None and len(tensor.dims) == 2 and tensor.data_type == TensorProto.FLOAT
        )

    def _heads(self, linears: list[_Linear]) -> list[_Linear]:
        """The layer that makes an output of the graph, else the widest."""
        outputs = {output.name for output in self._model.graph.output}
        heads = [linear for linear in linears if self._nodes[linear.index].output[0] in outputs]
        widest = max(self._outputs(linear) for linear in linears)
        return heads or [linear for linear in linears if self._outputs(linear) == widest]

    def _is_embedding(self, node: NodeProto, rows: set[int]) -> bool:
        """Whether a node looks tokens up: a table with as many rows as the head has outputs
        (positions have fewer, and suffer from few bits) that splits into whole blocks."""
        if node.op_type != "Gather" or not self._is_matrix(node.input[0]):
            return False
        count, width = self._tensors[node.input[0]].dims
        return _attribute(node, "axis", 0) == 0 and count in rows and width % BLOCK == 0

    def _inputs(self, linear: _Linear) -> int:
        return int(self._tensors[linear.weight].dims[1 if linear.transposed else 0])

    def _outputs(self, linear: _Linear) -> int:
        return int(self._tensors[linear.weight].dims[0 if linear.transposed else 1])

    def _linear(self, index: int, node: NodeProto, transposes: dict[str, str]) -> _Linear | None:
        if node.op_type == "MatMul":
            flip = False
        elif node.op_type == "Gemm" and _plain_gemm(node):
            flip = bool(_attribute(node, "transB", 0))
        else:
            return None
        weight = node.input[1]
        if self._is_matrix(weight):
            return _Linear(index, weight, flip)
        if weight in transposes:
            return _Linear(index, transposes[weight], not flip)
        return None

    def _matmul(self, linear: _Linear, bits: int) -> list[NodeProto]:
        node = self._nodes[linear.index]
        packed, scales, outputs, inputs = self._block(linear.weight, linear.transposed, bits)
        bias = node.op_type == "Gemm" and len(node.input) > 2 and node.input[2] != ""
        result = f"{node.output[0]}_without_bias" if bias else node.output[0]
        matmul = helper.make_node(
            "MatMulNBits",
            [node.input[0], packed.name, scales.name],
            [result],
            name=f"{node.output[0]}_{bits}bit",
            domain=_MICROSOFT,
            K=inputs,
            N=outputs,
            bits=bits,
            block_size=BLOCK,
            accuracy_level=ACCURACY_LEVEL,
        )
        if not bias:
            return [matmul]
        return [matmul, helper.make_node("Add", [result, node.input[2]], [node.output[0]])]

    def _gather(self, node: NodeProto, bits: int) -> NodeProto:
        packed, scales, outputs, inputs = self._block(node.input[0], True, bits)
        flat = self._data.alias(f"{packed.name}_rows", packed, (outputs, inputs * bits // 8))
        self._written.append(flat)
        return helper.make_node(
            "GatherBlockQuantized",
            [flat.name, node.input[1], scales.name],
            [node.output[0]],
            name=f"{node.output[0]}_{bits}bit",
            domain=_MICROSOFT,
            bits=bits,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )

    def _block(
        self, name: str, transposed: bool, bits: int
    ) -> tuple[TensorProto, TensorProto, int, int]:
        """Initializers of packed values and scales of a weight, and its N and K."""
        if (name, transposed) not in self._blocks:
            tensor = self._tensors[name]
            values: NDArray[np.float32] = read_tensor(tensor, self._folder)
            matrix = values if transposed else values.T
            blocks = quantise_blocks(matrix, bits=bits, block=BLOCK)
            self._blocks[name, transposed] = (
                *self._add(f"{name}_{'rows' if transposed else 'columns'}_q{bits}", blocks),
                *matrix.shape,
            )
            self._advance(name)
        return self._blocks[name, transposed]

    def _add(self, name: str, blocks: BlockwiseWeights) -> tuple[TensorProto, TensorProto]:
        packed = self._data.add(name, blocks.packed)
        scales = self._data.add(f"{name}_scales", blocks.scales)
        self._written += [packed, scales]
        return packed, scales

    def _advance(self, name: str) -> None:
        if name not in self._done:
            self._done.add(name)
            self._stage.advance(_bytes(self._tensors[name]))


def _bytes(tensor: TensorProto) -> int:
    width = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(math.prod(tensor.dims) * width)


def _attribute(node: NodeProto, name: str, default: float) -> float:
    for attribute in node.attribute:
        if attribute.name == name:
            return float(helper.get_attribute_value(attribute))
    return default


def _plain_gemm(node: NodeProto) -> bool:
    """Whether a Gemm is x W + b and nothing else."""
    return (
        _attribute(node, "alpha", 1.0) == 1.0
        and _attribute(node, "beta", 1.0) == 1.0
        and _attribute(node, "transA", 0) == 0
    )


def _as_fp16(name: str, values: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.isfinite(half).all():
        raise UnsupportedModel(
            f"weights of {name!r} do not fit fp16 (largest {np.abs(values).max():g}); "
            "export with 32, 8 or 4 bits"
        )
    return half
