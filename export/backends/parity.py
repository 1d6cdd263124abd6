"""A graph beside the model it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_sdk.draft.onnx_decoder import Decoder
from edge_sdk.draft.onnx_graph import DecoderGraph
from edge_sdk.draft.onnx_session import default_threads, open_session
from edge_sdk.errors import ModelError, UnsupportedModel

# Largest difference of two logits, relative to the spread of the row; both sides are fp32.
_MOST = 1e-3
_LENGTH = 24


def check_parity(path: Path, model: Any, *, context: int, backend: str) -> float:
    """Compare logits of an fp32 graph and of the model on a few random tokens.

    The text goes in as a prompt, token by token, and after a rewind by several at once.

    Args:
        path: the graph.
        model: of transformers, in fp32.
        context: most tokens a text will hold.
        backend: who made the graph, for messages.

    Returns:
        the largest difference of two logits, relative to the spread of its row.

    Raises:
        UnsupportedModel: they differ, or onnxruntime does not run the graph.
    """
    import torch

    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, min(_LENGTH, context))
    with torch.no_grad():
        rows = model(torch.tensor(ids)[None], use_cache=False).logits[0].numpy()
    try:
        worst = _worst(path, ids.tolist(), rows)
    except ModelError as error:
        raise UnsupportedModel(
            f"onnxruntime does not run the {backend} graph of this model ({error.message}); use "
            "another backend or another model"
        ) from error
    if not worst <= _MOST:
        raise UnsupportedModel(
            f"the {backend} graph does not compute what the model computes (logits differ by "
            f"{worst:.2g} of their spread, {_MOST:g} are allowed); use another backend or "
            "another model"
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
