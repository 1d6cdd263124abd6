"""Logits for the last token only."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

SLICE = "last_row"
# Inputs of a Slice [1, n, d] -> [1, 1, d] after its value.
BOUNDS = {
    f"{SLICE}_starts": -1,
    f"{SLICE}_ends": int(np.iinfo(np.int64).max),
    f"{SLICE}_axes": 1,
}


def keep_last_row(model: ModelProto) -> bool:
    """Make the head of a decoder graph see the last token of a pass and no other.

    A draft asks for one row of logits a pass, and with a wide vocabulary the head is a large
    part of the work: of a pass over n tokens this leaves 1/n of it, and [1, n, V] is never held.

    Returns:
        whether the graph was changed; False where its logits do not come out of a MatMul on
        hidden states [1, n, d], which stays correct but slower.
    """
    graph = model.graph
    logits = next((output for output in graph.output if output.name == "logits"), None)
    if logits is None:
        return False
    head = find_head(model, logits.name)
    if head is None:
        return False
    hidden = head.input[0]
    present = {tensor.name for tensor in graph.initializer}
    for name, value in BOUNDS.items():
        if name not in present:
            graph.initializer.append(
                numpy_helper.from_array(np.array([value], dtype=np.int64), name)
            )
    node = helper.make_node("Slice", [hidden, *BOUNDS], [SLICE], name=SLICE)
    head.input[0] = SLICE
    graph.node.insert(list(graph.node).index(head), node)
    logits.type.tensor_type.shape.dim[1].dim_value = 1
    return True


def keep_every_row(model: ModelProto) -> None:
    """Undo `keep_last_row`, and what `export.backends.fused_graph` does in its place: every
    layer and the head see all rows of a pass."""
    graph = model.graph
    starts = next(iter(BOUNDS))
    slices = [node for node in graph.node if node.op_type == "Slice" and node.input[1] == starts]
    sources = {node.output[0]: node.input[0] for node in slices}
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name in sources:
                node.input[index] = sources[name]
    for node in slices:
        graph.node.remove(node)


def find_head(model: ModelProto, name: str) -> NodeProto | None:
    """The MatMul behind the logits, through operators that work on each value alone."""
    makers = {output: node for node in model.graph.node for output in node.output}
    while (node := makers.get(name)) is not None:
        if node.op_type == "MatMul":
            found: NodeProto = node
            return found
        if node.op_type not in ("Cast", "Mul", "Div", "Tanh", "Identity"):
            return None
        name = node.input[0]
    return None
