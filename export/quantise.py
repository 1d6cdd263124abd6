"""Weights of an fp32 ONNX decoder in fewer bits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from edge_sdk.errors import InvalidRequest
from export.activation_power import activation_power
from export.external_data import ExternalData
from export.progress import Progress
from export.recipe import RECIPES
from export.weight_rewriter import WeightRewriter, byte_size

BITS = (4, 8, 16, 32)


def quantise_weights(
    graph: Path,
    out: Path,
    *,
    bits: int,
    progress: Progress,
    sample: Sequence[Sequence[int]] = (),
) -> Path:
    """Write a decoder graph with the weights of its linear layers in fewer bits.

    With 4 and 8 bits linear layers become MatMulNBits (symmetric blocks, weights only) and the
    embedding GatherBlockQuantized, as `RECIPES` says. Head and embedding share their bytes in
    the file where they are tied. With 16 bits weights are stored in fp16 and widened when the
    model is loaded: the file is half as large, speed and memory are those of fp32. With 32 bits
    they are copied.

    Args:
        graph: fp32 graph, weights inside or beside it.
        out: graph file to write; its weights go to `<out>.data` beside it.
        bits: 4, 8, 16 or 32.
        progress: stages that count tokens of the sample and bytes of fp32 weights.
        sample: texts as ids that are like what the model will read and write, see
            `export.sample_text`. With 4 bits the model reads them, and errors of weights that
            large inputs meet count more: at the same size the laws come out about half as far
            from those of fp32. Default: all count alike.

    Returns:
        `out`.

    Raises:
        InvalidRequest: another number of bits.
        UnsupportedModel: no linear layer of the graph has constant weights.
        ModelError: onnxruntime does not run the graph over the sample.
    """
    if bits not in BITS:
        raise InvalidRequest(
            f"{bits} bits a weight are not supported; use one of {', '.join(map(str, BITS))}",
            field="bits",
        )
    power = activation_power(graph, sample, progress=progress) if bits == 4 and sample else {}
    model = onnx.load(str(graph), load_external_data=False)
    total = sum(byte_size(tensor) for tensor in model.graph.initializer)
    with (
        progress.stage(f"writing weights in {bits} bits", total) as stage,
        ExternalData(out) as data,
    ):
        rewriter = WeightRewriter(model, graph.parent, data, stage, power)
        if bits in RECIPES:
            rewriter.quantise(RECIPES[bits])
        rewriter.copy(narrow=bits == 16)
    onnx.save(model, str(out))
    return out
