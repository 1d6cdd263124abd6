"""Exports on the versions that a phone has wheels for: `constraints/phone.txt`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.random_models import CONTEXT, WIDTH, write_model

from export.backend_registry import make_graph
from export.pipeline import export_draft
from export.progress import NoProgress
from export.pruned_graph import prune_head
from export.quantise import quantise_weights

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "constraints" / "phone.txt"
IDS = np.random.default_rng(9).integers(0, WIDTH, 24).tolist()
KEEP = np.arange(0, WIDTH, 2)[::-1]
GEMMA3 = {"head_dim": 32, "num_key_value_heads": 1, "sliding_window": 9}
GPT2 = {"n_embd": 64, "n_head": 4, "n_layer": 2}
GRAPHS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "llama-4": ("fused", "Llama", {"tie_word_embeddings": True}, 4),
    "qwen3-8": ("fused", "Qwen3", {"head_dim": 16}, 8),
    "gemma3-4": ("fused", "Gemma3", GEMMA3, 4),
    "mistral-16": ("fused", "Mistral", {"sliding_window": 9}, 16),
    "gpt2-4": ("optimum", "GPT2", GPT2, 4),
    "pruned-4": ("fused", "Llama", {"tie_word_embeddings": True}, 4),
}
# Passes of one, of many, and after a rewind.
PROGRAM = """
import json, sys
from pathlib import Path
import numpy, onnxruntime, tokenizers
from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.draft.onnx_decoder import Decoder
from edge_sdk.draft.onnx_graph import DecoderGraph
from edge_sdk.draft.onnx_session import open_session

folder, context, ids = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
rows = {}
for graph in sorted(folder.glob("*.onnx")):
    session = open_session(graph, threads=1, spin=False)
    read = DecoderGraph.read(session.get_inputs(), session.get_outputs())
    decoder = Decoder(session, read, width=read.width, context=context)
    decoder.extend(ids[:10])
    for token in ids[10:16]:
        decoder.extend([token])
    decoder.keep(12)
    rows[graph.stem] = decoder.extend(ids[12:]).tolist()
with OnnxDraft.open(folder / "draft", threads=1) as draft:
    draft.append(draft.text.prompt("the 12 theses"))
    rows["draft"] = draft.next_logits().tolist()
versions = {m.__name__: m.__version__ for m in (numpy, onnxruntime, tokenizers)}
print(json.dumps({"rows": rows, "versions": versions}))
"""


@pytest.fixture(scope="module")
def folder(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Graphs of several families, and one whole draft folder."""
    made = tmp_path_factory.mktemp("graphs")
    for name, (backend, family, options, bits) in GRAPHS.items():
        work = tmp_path_factory.mktemp("work")
        write_model(work / "source", family, **options)
        graph, _ = make_graph(
            backend, work / "source", work, context=CONTEXT, progress=NoProgress()
        )
        if name.startswith("pruned"):
            graph = prune_head(graph, work / "pruned.onnx", keep=KEEP, progress=NoProgress())
        quantise_weights(
            graph, made / f"{name}.onnx", bits=bits, progress=NoProgress(), sample=[IDS]
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSD_HOME", str(made / "home"))
        export_draft(tiny_checkpoint, made / "draft")
    return made


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with a phone's versions of what the SDK's draft needs."""
    place = tmp_path_factory.mktemp("phone") / "venv"
    venv.create(place, with_pip=True)
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    packages = ("numpy", "onnxruntime", "tokenizers")
    install = subprocess.run(
        [python, "-m", "pip", "install", "--no-input", "-c", PINS, *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    assert install.returncode == 0, install.stdout + install.stderr
    return python


def run(python: Path, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-c", PROGRAM, folder, str(CONTEXT), json.dumps(IDS)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.packaging
@pytest.mark.timeout(600)
def test_exports_run_on_a_phones_versions_and_compute_the_same(folder: Path, phone: Path) -> None:
    theirs, ours = run(phone, folder), run(Path(sys.executable), folder)
    pins = dict(line.split("==") for line in PINS.read_text().splitlines() if "==" in line)
    for name in ("numpy", "onnxruntime", "tokenizers"):
        assert theirs["versions"][name] == pins[name]
    assert theirs["versions"]["onnxruntime"] == "1.27.0" != ours["versions"]["onnxruntime"]
    assert set(theirs["rows"]) == {*GRAPHS, "draft"}
    for name, row in theirs["rows"].items():
        expected = np.array(ours["rows"][name])
        assert np.abs(np.array(row) - expected).max() < 0.01 * np.ptp(expected), name
