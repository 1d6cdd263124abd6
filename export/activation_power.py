"""How large the inputs of linear layers are over a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from edge_sdk.draft.onnx_graph import DecoderGraph
from edge_sdk.draft.onnx_session import default_threads, open_session, run_failures
from export.last_row import keep_every_row, keep_last_row
from export.linear_layers import find_linears
from export.progress import Progress

_SUFFIX = "_power"


def activation_power(
    graph: Path, texts: Sequence[Sequence[int]], *, progress: Progress
) -> dict[str, NDArray[np.float32]]:
    """Mean square of every input of the linear layers of a decoder graph.

    Weights that large inputs meet weigh more in the output; the source of the idea is the
    importance matrix of llama.cpp.

    Args:
        graph: fp32 graph.
        texts: ids, each read from its beginning in one pass, so none longer than the context
            of the model; at least one.
        progress: one stage that counts tokens.

    Returns:
        float32 [K] by the name of what comes out of the layer.

    Raises:
        ModelError: onnxruntime does not run the graph.
    """
    model = onnx.load(str(graph), load_external_data=False)
    keep_every_row(model)
    linears = find_linears(model)
    # The head itself, which is wide, sees one row; what enters it is measured before.
    keep_last_row(model)
    _add_sums(model, {linear.value: linear.inputs for linear in linears})
    # Weights are found beside the graph, so the changed one must lie there too.
    measuring = graph.with_name(f"{graph.stem}-measuring.onnx")
    onnx.save(model, str(measuring))
    try:
        sums = _run(measuring, texts, progress)
    finally:
        measuring.unlink(missing_ok=True)
    scale = np.float32(1 / sum(map(len, texts)))
    return {linear.output: scale * sums[linear.value + _SUFFIX] for linear in linears}


def _add_sums(model: ModelProto, values: Mapping[str, int]) -> None:
    """Outputs with the sum over all rows of the square of each value."""
    graph = model.graph
    for name, numbers in (("flat", [-1]), ("rows", [0])):
        graph.initializer.append(
            numpy_helper.from_array(np.array(numbers, dtype=np.int64), name + _SUFFIX)
        )
    for name, width in values.items():
        shape, rows, square = (f"{name}_{part}{_SUFFIX}" for part in ("shape", "flat", "square"))
        graph.initializer.append(
            numpy_helper.from_array(np.array([-1, width], dtype=np.int64), shape)
        )
        graph.node.extend(
            [
                helper.make_node("Reshape", [name, shape], [rows], name=rows),
                helper.make_node("Mul", [rows, rows], [square], name=square),
                helper.make_node(
                    "ReduceSum",
                    [square, f"rows{_SUFFIX}"],
                    [name + _SUFFIX],
                    name=name + _SUFFIX,
                    keepdims=0,
                ),
            ]
        )
        graph.output.append(
            helper.make_tensor_value_info(name + _SUFFIX, TensorProto.FLOAT, [width])
        )


def _run(
    graph: Path, texts: Sequence[Sequence[int]], progress: Progress
) -> dict[str, NDArray[np.float32]]:
    session = open_session(graph, threads=default_threads(), spin=False)
    outputs = session.get_outputs()
    names = [output.name for output in outputs if output.name.endswith(_SUFFIX)]
    read = DecoderGraph.read(
        session.get_inputs(), [output for output in outputs if not output.name.endswith(_SUFFIX)]
    )
    totals: dict[str, NDArray[np.float32]] = {}
    with progress.stage("measure which weights matter", sum(map(len, texts))) as stage:
        for ids in texts:
            with run_failures("a pass over the sample text"):
                found = session.run(names, _feeds(read, ids))
            for name, value in zip(names, found, strict=True):
                totals[name] = totals.get(name, np.float32(0.0)) + value
            stage.advance(len(ids))
    return totals


def _feeds(graph: DecoderGraph, ids: Sequence[int]) -> dict[str, Any]:
    """A pass from the beginning of a text."""
    count = len(ids)
    feeds: dict[str, Any] = {graph.ids.name: np.array([ids], graph.ids.dtype)}
    if graph.mask is not None:
        feeds[graph.mask.name] = np.ones((1, count), graph.mask.dtype)
    if graph.positions is not None:
        feeds[graph.positions.name] = np.arange(count, dtype=graph.positions.dtype)[None]
    if graph.lengths is not None:
        feeds[graph.lengths.last.name] = np.array([count - 1], graph.lengths.last.dtype)
        feeds[graph.lengths.total.name] = np.array(count, graph.lengths.total.dtype)
    # A graph with lengths keeps its rows in the past; the others begin with none.
    capacity = 0 if graph.lengths is None else count
    for slot in graph.cache:
        feeds[slot.past] = np.zeros(slot.shape(capacity), slot.dtype)
    return feeds
