"""Export of Llama and its relatives as a graph of fused operators, written directly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from edge_sdk.errors import ModelFolderInvalid, UnsupportedModel
from export.backends.base import ExportBackend
from export.backends.fused_graph import FusedGraph
from export.backends.fused_parity import check_parity
from export.backends.fused_shape import ARCHITECTURES, read_shape
from export.external_data import ExternalData
from export.progress import Progress


class FusedBackend(ExportBackend):
    """Decoders of the Llama family, from their weights.

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
        with progress.stage("load the model"):
            model = _load(source, trust_remote_code)
        shape = read_shape(model, context=context)
        out = work / "decoder.onnx"
        with progress.stage("write fp32 weights") as stage, ExternalData(out) as data:
            graph = FusedGraph(shape, model.state_dict(), data, stage).build()
        onnx.save(graph, str(out))
        with progress.stage("compare the graph with the model"):
            check_parity(out, model, shape)
        return out


def _load(source: Path, trust_remote_code: bool) -> Any:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(
            source, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError, KeyError) as error:
        raise ModelFolderInvalid(
            f"{source} has no usable config.json ({_first_line(error)}); fetch the model again"
        ) from error
    names = config.architectures or []
    if not set(names) & set(ARCHITECTURES):
        raise UnsupportedModel(
            f"the fused export does not know {', '.join(names) or config.model_type}, only "
            f"{', '.join(ARCHITECTURES)}; use the backend optimum"
        )
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedModel(
            f"the weights of {source} are quantised already; export the original model"
        )
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=trust_remote_code,
            attn_implementation="eager",
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise ModelFolderInvalid(
            f"{source} is not a readable model ({_first_line(error)}); fetch the model again"
        ) from error
    model, loading = loaded
    # transformers makes up what a file lacks.
    if loading["missing_keys"]:
        missing = sorted(loading["missing_keys"])
        raise ModelFolderInvalid(
            f"the weights of {source} lack {len(missing)} tensors ({', '.join(missing[:3])}); "
            "fetch the model again"
        )
    return model.eval()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
