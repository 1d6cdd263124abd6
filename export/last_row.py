"""Logits for the last token only."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

_SLICE = "last_row"


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
    makers = {name: node for node in graph.node for name in node.output}
    head = _head(makers, logits.name)
    if head is None:
        return False
    hidden = head.input[0]
    bounds = {"starts": -1, "ends": np.iinfo(np.int64).max, "axes": 1}
    for name, value in bounds.items():
        graph.initializer.append(
            numpy_helper.from_array(np.array([value], dtype=np.int64), f"{_SLICE}_{name}")
        )
    node = helper.make_node(
        "Slice", [hidden, *[f"{_SLICE}_{name}" for name in bounds]], [_SLICE], name=_SLICE
    )
    head.input[0] = _SLICE
    graph.node.insert(list(graph.node).index(head), node)
    logits.type.tensor_type.shape.dim[1].dim_value = 1
    return True


def _head(makers: dict[str, NodeProto], name: str) -> NodeProto | None:
    """The MatMul behind the logits, through operators that work on each value alone."""
    while (node := makers.get(name)) is not None:
        if node.op_type == "MatMul":
            return node
        if node.op_type not in ("Cast", "Mul", "Div", "Tanh", "Identity"):
            return None
        name = node.input[0]
    return None
