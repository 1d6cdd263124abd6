"""A head for the common vocabulary only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from edge_sdk.errors import UnsupportedModel
from export.external_data import ExternalData, read_tensor
from export.last_row import find_head
from export.linear_layers import Linear, find_linears
from export.progress import Progress

_ROW_OF_ID, _HEAD_ROWS, _ROWS = "row_of_id", "head_rows", "input_rows"


def prune_head(graph: Path, out: Path, *, keep: NDArray[np.int64], progress: Progress) -> Path:
    """Write a decoder graph whose logits are those of some tokens, in a given order.

    A head that is tied to the embedding stays so: rows of the embedding are put in another
    order, those that are kept first, and the head is the first rows. The file does not grow.

    Args:
        graph: fp32 graph, weights inside or beside it.
        out: graph file to write; its weights go to `<out>.data` beside it.
        keep: ids whose logits are computed, all different; `Alignment.draft_ids` gives logits
            by rank.
        progress: one stage that counts weights.

    Returns:
        `out`.

    Raises:
        UnsupportedModel: logits do not come from one matrix with a row or column a token.
    """
    model = onnx.load(str(graph), load_external_data=False)
    head = _head(model)
    if not (keep.ndim == 1 and len(keep) and len(np.unique(keep)) == len(keep)):
        raise ValueError("ids to keep are a list without repetitions")
    if not 0 <= keep.min() <= keep.max() < head.outputs:
        raise ValueError(f"ids to keep are not all below {head.outputs}")
    changed = _Pruned(model, head, keep)
    tensors = list(model.graph.initializer)
    del model.graph.initializer[:]
    with progress.stage("prune the head", len(tensors)) as stage, ExternalData(out) as data:
        for tensor in tensors:
            values = read_tensor(tensor, graph.parent)
            if tensor.name == head.weight:
                values = changed.values(values)
            written = data.add(tensor.name, values)
            model.graph.initializer.append(written)
            if tensor.name == head.weight:
                model.graph.initializer.extend(changed.more(written, data))
            stage.advance()
    onnx.save(model, str(out))
    return out


class _Pruned:
    """The nodes of a graph with a smaller head, and the weights that they need."""

    def __init__(self, model: ModelProto, head: Linear, keep: NDArray[np.int64]) -> None:
        self._head = head
        self._keep = keep
        nodes = model.graph.node
        makers = {node.output[0]: node for node in nodes}
        # What reads the matrix besides the head: the embedding, if it is tied.
        flipped = makers.get(nodes[head.index].input[1])
        users = [node for node in nodes if head.weight in node.input]
        self._tied = [node for node in users if node not in (flipped, nodes[head.index])]
        if any(node.op_type != "Gather" or node.input[0] != head.weight for node in self._tied):
            raise _unsupported("a head whose matrix is used elsewhere")
        if self._tied and not (flipped is not None and head.transposed):
            raise _unsupported("a head whose matrix lies across that of its embedding")
        order = np.concatenate([keep, np.setdiff1d(np.arange(head.outputs), keep)])
        self._order = order
        if self._tied and flipped is not None:
            flipped.input[0] = _HEAD_ROWS
            for index, node in enumerate(self._tied):
                rows = f"{_ROWS}_{index}"
                look = helper.make_node("Gather", [_ROW_OF_ID, node.input[1]], [rows], name=rows)
                node.input[1] = rows
                nodes.insert(list(nodes).index(node), look)
        for output in model.graph.output:
            if output.name == "logits":
                output.type.tensor_type.shape.dim[2].dim_value = len(keep)

    def values(self, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
        """What is stored for the matrix of the head."""
        rows: NDArray[np.float32] = matrix if self._head.transposed else matrix.T
        chosen = np.take(rows, self._order if self._tied else self._keep, axis=0)
        return np.asarray(chosen if self._head.transposed else chosen.T, dtype=np.float32)

    def more(self, written: TensorProto, data: ExternalData) -> list[TensorProto]:
        """What is stored besides."""
        if not self._tied:
            return []
        rows = np.empty(len(self._order), dtype=np.int32)
        rows[self._order] = np.arange(len(rows), dtype=np.int32)
        shape = (len(self._keep), self._head.inputs)
        return [data.alias(_HEAD_ROWS, written, shape), data.add(_ROW_OF_ID, rows)]


def _head(model: ModelProto) -> Linear:
    node = find_head(model, "logits")
    linears = find_linears(model)
    found = [linear for linear in linears if node is not None and linear.output == node.output[0]]
    if not found:
        raise _unsupported("logits that do not come from one matrix")
    head = found[0]
    if _wide_constants(model, head):
        raise _unsupported("logits that are scaled token by token")
    return head


def _wide_constants(model: ModelProto, head: Linear) -> list[NodeProto]:
    """Nodes after the head with a constant for each token."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    return [
        node
        for node in model.graph.node
        if node.op_type in ("Mul", "Div")
        and any(
            name in tensors and list(tensors[name].dims[-1:]) == [head.outputs]
            for name in node.input
        )
    ]


def _unsupported(what: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"the graph has {what}, so its head cannot be pruned; export it without a target"
    )
