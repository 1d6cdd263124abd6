"""A traced decoder graph -> the form that the rest of the export works on."""

from __future__ import annotations

import math
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto

from edge_sdk.errors import ModelFolderInvalid, UnsupportedModel
from export.external_data import ExternalData, read_tensor
from export.last_row import keep_last_row
from export.progress import Progress


def normalised(traced: Path, out: Path, progress: Progress) -> Path:
    """Write the traced graph with a head for the last row only and its weights beside it.

    Raises:
        ModelFolderInvalid: the graph or a file of its weights cannot be read.
    """
    model = read_graph(traced)
    keep_last_row(model)
    tensors = list(model.graph.initializer)
    del model.graph.initializer[:]
    with (
        progress.stage("writing fp32 weights", len(tensors)) as stage,
        ExternalData(out) as data,
    ):
        for tensor in tensors:
            values = read_tensor(tensor, traced.parent)
            model.graph.initializer.append(data.add(tensor.name, values))
            stage.advance()
    onnx.save(model, str(out))
    return out


def read_graph(path: Path) -> ModelProto:
    """A graph, its weights left in their files.

    Raises:
        ModelFolderInvalid: it is missing, or no ONNX file.
    """
    try:
        return onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's own errors are of no common class
        raise ModelFolderInvalid(
            f"{path} is no readable ONNX graph ({type(error).__name__}); export the model again"
        ) from error


def find_traced(folder: Path) -> Path | None:
    """The decoder graph of a folder that optimum's own exporter made, if it is one."""
    found = sorted(folder.glob("*.onnx"))
    named = folder / "model.onnx"
    if named in found:
        return named
    return found[0] if len(found) == 1 else None


def check_traced(path: Path) -> ModelProto:
    """The graph, if it is a decoder with past keys and values whose weights are there.

    Raises:
        ModelFolderInvalid: it cannot be read, or files of its weights are missing or truncated.
        UnsupportedModel: it is something else.
    """
    model = read_graph(path)
    inputs = [value.name for value in model.graph.input]
    again = "export it with `optimum-cli export onnx --task text-generation-with-past`"
    if "input_ids" not in inputs or "logits" not in {o.name for o in model.graph.output}:
        raise UnsupportedModel(f"{path} is no decoder from input_ids to logits; {again}")
    if not any("past" in name for name in inputs):
        raise UnsupportedModel(f"{path} takes no past keys and values; {again}")
    if any(node.op_type == "If" for node in model.graph.node):
        raise UnsupportedModel(f"{path} is two graphs merged into one; {again}")
    for tensor in model.graph.initializer:
        read_tensor(tensor, path.parent)  # maps it, which fails where the file is too short
    return model


def data_files(graph: Path, model: ModelProto) -> tuple[Path, ...]:
    """Files beside `graph` that hold its weights, by name."""
    names = {
        entry.value
        for tensor in model.graph.initializer
        if tensor.data_location == TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return tuple(graph.parent / Path(name).name for name in sorted(names))


def count_parameters(model: ModelProto) -> int:
    """Weights in matrices and vectors of floats."""
    floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    return sum(
        math.prod(tensor.dims) for tensor in model.graph.initializer if tensor.data_type in floats
    )
