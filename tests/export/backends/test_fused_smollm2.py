"""The fused graph of the real draft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.draft.manifest import Manifest
from edge_sdk.draft.onnx_decoder import Decoder
from edge_sdk.draft.onnx_graph import DecoderGraph
from edge_sdk.draft.onnx_session import open_session
from export.backends.fused_backend import FusedBackend
from export.progress import NoProgress

pytestmark = pytest.mark.models

TEXT = (
    "In 753 BC, according to legend, Romulus founded a settlement on the Palatine hill, and it "
    "grew into a republic governed by senators and consuls.\n\ndef consuls(year):\n    return 2\n"
)
WIDTH, CONTEXT = 49152, 256


@pytest.fixture(scope="module")
def model(smollm2_folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32).eval()


def test_fp32_logits_along_a_text(smollm2_folder: Path, tmp_path: Path, model: Any) -> None:
    import torch
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
    ids = tokenizer.encode(TEXT).ids
    graph = FusedBackend().export(smollm2_folder, tmp_path, context=CONTEXT, progress=NoProgress())
    session = open_session(graph, threads=1, spin=False)
    read = DecoderGraph.read(session.get_inputs(), session.get_outputs())
    decoder = Decoder(session, read, width=WIDTH, context=CONTEXT)
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    random = np.random.default_rng(0)
    while decoder.length < len(ids):
        at = decoder.length
        decoder.extend(random.integers(0, WIDTH, int(random.integers(1, 5))).tolist())
        decoder.keep(at)
        until = min(len(ids), at + int(random.integers(1, 4)))
        row = decoder.extend(ids[at:until])
        assert np.abs(row - expected[until - 1]).max() < 1e-3
        assert row.argmax() == expected[until - 1].argmax()


def test_the_prepared_draft_is_fused(smollm2_draft_folder: Path) -> None:
    assert Manifest.read(smollm2_draft_folder).backend == "fused"
