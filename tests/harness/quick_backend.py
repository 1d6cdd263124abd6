"""An export backend that needs no model, for what is around the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from export.backends.base import ExportBackend
from export.progress import Progress


def write_graph(work: Path, *, past: bool = True) -> Path:
    """The smallest decoder: an embedding, a head, and a cache that only grows."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str, kind: int, shape: list[Any]) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    random = np.random.default_rng(0)
    weights = {
        "embedding": random.standard_normal((272, 64)).astype(np.float32),
        "lm_head": random.standard_normal((64, 272)).astype(np.float32),
        "row": np.array([1, 1, -1, 1], dtype=np.int64),
    }
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "lm_head"], ["logits"]),
    ]
    inputs = [value("input_ids", TensorProto.INT64, [1, "n"])]
    outputs = [value("logits", TensorProto.FLOAT, [1, "n", 272])]
    if past:
        nodes += [
            helper.make_node("Cast", ["input_ids"], ["floats"], to=TensorProto.FLOAT),
            helper.make_node("Reshape", ["floats", "row"], ["rows"]),
        ]
        for kind in ("key", "value"):
            before, after = f"past_key_values.0.{kind}", f"present.0.{kind}"
            nodes.append(helper.make_node("Concat", [before, "rows"], [after], axis=2))
            inputs.append(value(before, TensorProto.FLOAT, [1, 1, "past", 1]))
            outputs.append(value(after, TensorProto.FLOAT, [1, 1, "all", 1]))
    tensors = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = work / "decoder.onnx"
    onnx.save(model, path)
    return path


class QuickBackend(ExportBackend):
    """Makes a graph without a model behind it; what is around the graph is tested here."""

    name = "quick"
    error: BaseException | None = None

    def export(
        self,
        source: Path,
        work: Path,
        *,
        context: int,
        progress: Progress,
        trust_remote_code: bool = False,
    ) -> Path:
        with progress.stage("make the graph"):
            if self.error is not None:
                raise self.error
            return write_graph(work)
