"""The linear layers of an ONNX decoder graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto, helper


@dataclass(frozen=True, slots=True)
class Linear:
    """A MatMul or Gemm with a constant weight.

    Attributes:
        index: where the node is in the graph.
        value: name of what enters, [..., K].
        output: name of what comes out, [..., N].
        weight: name of the initializer.
        transposed: whether the weight lies as [N, K].
        inputs: K.
        outputs: N.
    """

    index: int
    value: str
    output: str
    weight: str
    transposed: bool
    inputs: int
    outputs: int


def find_linears(model: ModelProto) -> list[Linear]:
    """Every linear layer, in the order of the graph. A weight may pass a Transpose first."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    flipped = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "Transpose" and is_matrix(tensors, node.input[0])
    }
    found = []
    for index, node in enumerate(model.graph.node):
        if node.op_type == "MatMul":
            transposed = False
        elif node.op_type == "Gemm" and _is_plain(node):
            transposed = bool(attribute(node, "transB", 0))
        else:
            continue
        weight = node.input[1]
        if weight in flipped:
            weight, transposed = flipped[weight], not transposed
        if not is_matrix(tensors, weight):
            continue
        rows, columns = tensors[weight].dims
        inputs, outputs = (columns, rows) if transposed else (rows, columns)
        found.append(
            Linear(index, node.input[0], node.output[0], weight, transposed, inputs, outputs)
        )
    return found


def find_heads(model: ModelProto, linears: Sequence[Linear]) -> list[Linear]:
    """The layers that make an output of the graph, else the widest."""
    outputs = {output.name for output in model.graph.output}
    heads = [linear for linear in linears if linear.output in outputs]
    widest = max((linear.outputs for linear in linears), default=0)
    return heads or [linear for linear in linears if linear.outputs == widest]


def is_matrix(tensors: Mapping[str, TensorProto], name: str) -> bool:
    """Whether an initializer is a float32 matrix."""
    tensor = tensors.get(name)
    return tensor is not None and len(tensor.dims) == 2 and tensor.data_type == TensorProto.FLOAT


def attribute(node: NodeProto, name: str, default: float) -> float:
    """A number among the attributes of a node."""
    for found in node.attribute:
        if found.name == name:
            return float(helper.get_attribute_value(found))
    return default


def _is_plain(gemm: NodeProto) -> bool:
    """Whether a Gemm is x W + b and nothing else."""
    return (
        attribute(gemm, "alpha", 1.0) == 1.0
        and attribute(gemm, "beta", 1.0) == 1.0
        and attribute(gemm, "transA", 0) == 0
    )
