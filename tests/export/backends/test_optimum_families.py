from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.random_models import CONTEXT, WIDTH, write_model

from edge_sdk.draft.onnx_decoder import Decoder
from edge_sdk.draft.onnx_graph import DecoderGraph
from edge_sdk.draft.onnx_session import open_session
from edge_sdk.errors import UnsupportedModel
from export.backend_registry import make_graph
from export.backends.loading import load_model
from export.backends.optimum_backend import OptimumBackend
from export.progress import NoProgress
from export.quantise import quantise_weights

BOUND = 2e-5  # of the spread of a row
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "n_inner": 96}
OPT = {"ffn_dim": 96, "word_embed_proj_dim": 64, "num_hidden_layers": 2}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", GPT2),
    "opt": ("OPT", OPT),
    "opt-350m": ("OPT", OPT | {"word_embed_proj_dim": 32, "do_layer_norm_before": False}),
    "pythia": ("GPTNeoX", {"rotary_pct": 0.25, "num_hidden_layers": 2}),
    "pythia-serial": ("GPTNeoX", {"use_parallel_residual": False, "num_hidden_layers": 2}),
    "tinyllama": ("Llama", {"num_attention_heads": 8, "head_dim": 12, "num_hidden_layers": 2}),
    "gemma2": ("Gemma2", {"head_dim": 20, "attn_logit_softcapping": 2.0, "sliding_window": 7}),
}


@dataclass(frozen=True)
class Made:
    """A random model and the graph that `auto` makes of it, which is none of the fused ones."""

    model: Any
    source: Path
    graph: Path

    def logits(self, ids: list[int]) -> np.ndarray:
        import torch

        with torch.no_grad():
            return np.asarray(self.model(torch.tensor([ids])).logits[0, -1].numpy())


def decoder(graph: Path) -> Decoder:
    session = open_session(graph, threads=1, spin=False)
    read = DecoderGraph.read(session.get_inputs(), session.get_outputs())
    return Decoder(session, read, width=WIDTH, context=CONTEXT)


def difference(row: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(row - exact).max() / (exact.max() - exact.min()))


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    family, options = FAMILIES[request.param]
    source, work = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("work")
    model = write_model(source, family, **options)
    graph, maker = make_graph("auto", source, work, context=CONTEXT, progress=NoProgress())
    assert maker == "optimum"
    return Made(model, source, graph)


def test_logits_are_those_of_transformers_at_every_length(made: Made) -> None:
    ids = np.random.default_rng(1).integers(0, WIDTH, 40).tolist()
    stepping = decoder(made.graph)
    for count in range(1, len(ids) + 1):
        row = stepping.extend([ids[count - 1]])
        assert difference(row, made.logits(ids[:count])) < BOUND


def test_rewinds_and_passes_of_many_tokens(made: Made) -> None:
    random = np.random.default_rng(2)
    running = decoder(made.graph)
    text: list[int] = []
    for _ in range(30):
        kept = int(random.integers(max(0, len(text) - 9), len(text) + 1))
        del text[kept:]
        running.keep(kept)
        new = random.integers(0, WIDTH, random.integers(1, 20)).tolist()
        if len(text) + len(new) > CONTEXT:
            break
        text += new
        assert difference(running.extend(new), made.logits(text)) < BOUND
    assert len(text) > 40


def test_few_bits_stay_near(made: Made, tmp_path: Path) -> None:
    sample = [np.random.default_rng(4).integers(0, WIDTH, 60).tolist()]
    ids = np.random.default_rng(3).integers(0, WIDTH, 12).tolist()
    exact = made.logits(ids)
    errors = {}
    for bits in (8, 4):
        out = tmp_path / f"{bits}.onnx"
        quantise_weights(made.graph, out, bits=bits, progress=NoProgress(), sample=sample)
        errors[bits] = float(np.linalg.norm(decoder(out).extend(ids) - exact))
    spread = float(np.linalg.norm(exact - exact.mean()))
    assert errors[8] < 0.1 * spread
    assert errors[8] < errors[4] < 0.7 * spread


def test_a_graph_that_computes_something_else_is_not_given_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own attention leaves out caps of scores, and so would a graph traced with it."""
    options = FAMILIES["gemma2"][1] | {"attn_logit_softcapping": 0.2, "num_hidden_layers": 1}
    write_model(tmp_path / "source", "Gemma2", **options)

    def loaded(*args: Any, **named: Any) -> Any:
        return load_model(*args, **(named | {"attention": "sdpa"}))

    monkeypatch.setattr("export.backends.optimum_backend.load_model", loaded)
    with pytest.raises(UnsupportedModel, match="optimum graph does not compute"):
        OptimumBackend().export(
            tmp_path / "source", tmp_path, context=CONTEXT, progress=NoProgress()
        )
