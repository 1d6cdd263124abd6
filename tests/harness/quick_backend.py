"""An export backend that needs no model, for what is around the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from export.backends.base import ExportBackend
from export.progress import Progress


def write_graph(work: Path) -> Path:
    """A graph with one linear layer, enough for the quantiser."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(0).standard_normal((64, 272)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "lm_head"], ["logits"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "n", 64])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, "n", 272])],
        [numpy_helper.from_array(weight, "lm_head")],
    )
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
