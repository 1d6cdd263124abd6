"""Export of Llama and its relatives as a graph of fused operators, written directly."""

from __future__ import annotations

from pathlib import Path

import onnx

from edge_sdk.errors import UnsupportedModel
from export.backends.base import ExportBackend
from export.backends.fused_graph import FusedGraph
from export.backends.fused_shape import ARCHITECTURES, read_shape
from export.backends.loading import load_config, load_model
from export.backends.parity import check_parity
from export.external_data import ExternalData
from export.progress import Progress


class FusedBackend(ExportBackend):
    """Decoders of the Llama and Gemma families, from their weights.

    About ten nodes a layer: GroupQueryAttention with rotary positions on shared buffers of
    keys and values, skip connections inside the norms, one matrix for query, key and value
    and one for gate and up. The finished graph is compared with the model in fp32.
    """

    name = "fused"

    def export(
        self,
        source: Path,
        work: Path,
        *,
        context: int,
        progress: Progress,
        trust_remote_code: bool = False,
    ) -> Path:
        config = load_config(source, trust_remote_code=trust_remote_code)
        names = config.architectures or []
        if not set(names) & set(ARCHITECTURES):
            raise UnsupportedModel(
                f"the fused export does not know {', '.join(names) or config.model_type}, only "
                f"{', '.join(ARCHITECTURES)}; use the backend optimum"
            )
        with progress.stage("load the model"):
            model = load_model(
                source, config, trust_remote_code=trust_remote_code, attention="eager"
            )
        shape = read_shape(model, context=context)
        out = work / "decoder.onnx"
        with progress.stage("write fp32 weights") as stage, ExternalData(out) as data:
            graph = FusedGraph(shape, model.state_dict(), data, stage).build()
        onnx.save(graph, str(out))
        with progress.stage("compare the graph with the model"):
            check_parity(out, model, context=context, backend=self.name)
        return out
