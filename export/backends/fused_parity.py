"""A fused graph beside the model it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_sdk.draft.onnx_decoder import Decoder
from edge_sdk.draft.onnx_graph import DecoderGraph
from edge_sdk.draft.onnx_session import default_threads, open_session
from edge_sdk.errors import ModelError, UnsupportedModel
from export.backends.fused_shape import DecoderShape

# Largest difference of two logits, relative to the spread of the row; both sides are fp32.
_MOST = 1e-3
_LENGTH = 24


def check_parity(path: Path, model: Any, shape: DecoderShape) -> float:
    """Compare logits of an fp32 graph and of the model on a few random tokens.

    The text goes in as a prompt, token by token, and after a rewind by several at once.

    Returns:
        the largest difference of two logits, relative to the spread of its row.

    Raises:
        UnsupportedModel: they differ, or onnxruntime does not run the graph.
    """
    import torch

    length = min(_LENGTH, len(shape.cosines))
    ids = np.random.default_rng(0).integers(0, shape.vocabulary, length).tolist()
    with torch.no_grad():
        rows = model(torch.tensor([ids])).logits[0].numpy()
    try:
        worst = _worst(path, ids, rows)
    except ModelError as error:
        raise UnsupportedModel(
            f"onnxruntime does not run the fused graph of this model ({error.message}); use the "
            "backend optimum"
        ) from error
    if not worst <= _MOST:
        raise UnsupportedModel(
            f"the fused graph does not compute what the model computes (logits differ by "
            f"{worst:.2g} of their spread, {_MOST:g} are allowed); use the backend optimum"
        )
    return worst


def _worst(path: Path, ids: list[int], rows: NDArray[np.float32]) -> float:
    length = len(ids)
    session = open_session(path, threads=default_threads(), spin=False)
    graph = DecoderGraph.read(session.get_inputs(), session.get_outputs())
    decoder = Decoder(session, graph, width=rows.shape[1], context=length)
    differences = []

    def extend(until: int) -> None:
        row, expected = decoder.extend(ids[decoder.length : until]), rows[until - 1]
        spread = float(expected.max() - expected.min()) or 1.0
        differences.append(float(np.abs(row - expected).max()) / spread)

    try:
        extend(max(1, length // 3))
        while decoder.length < length:
            extend(decoder.length + 1)
        decoder.keep(length // 2)
        extend(length)
        decoder.keep(length - 1)
        extend(length)
    finally:
        decoder.close()
    return max(differences)
