from __future__ import annotations

import inspect
import json
import shutil
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.quick_backend import QuickBackend

from edge_sdk.draft.manifest import Manifest
from edge_sdk.errors import (
    CosdError,
    InvalidRequest,
    ModelFolderInvalid,
    OutOfSpace,
    PreparationError,
    UnsupportedModel,
)
from edge_sdk.vocab.tokenizer_json import read_tokenizer
from export import pipeline
from export.backend_registry import BACKENDS, load_backend
from export.pipeline import export_draft, prepare_draft, prepare_target


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.usefixtures("quick")
def test_a_draft_folder(tiny_checkpoint: Path, tmp_path: Path, recorder: Any) -> None:
    out = tmp_path / "draft"
    manifest = export_draft(
        tiny_checkpoint, out, bits=8, context=100, backend="quick", progress=recorder
    )
    assert Manifest.read(out) == manifest
    manifest.check_files(out, digests=True)
    assert set(files(out)) == {"manifest.json", *manifest.files}
    given, written = ((f / "tokenizer.json").read_bytes() for f in (tiny_checkpoint, out))
    assert json.loads(written) == json.loads(given)
    assert (manifest.name, manifest.bits, manifest.context) == ("draft", 8, 100)
    assert manifest.logits_width == 272
    vocabulary = read_tokenizer(out / "tokenizer.json", width=272)
    roles = read_tokenizer(tiny_checkpoint, width=272).roles
    assert manifest.roles == {str(role): ids for role, ids in roles.items()}
    assert manifest.vocabulary_fingerprint
    assert len(vocabulary) == 272
    assert manifest.prefix_ids == ()
    assert manifest.chat is not None
    assert manifest.chat.generation == "<|im_start|>assistant\n"
    assert set(manifest.versions) >= {"torch", "transformers", "onnxruntime"}
    assert len({name for name, _ in recorder.stages}) >= 5, "a stage for each step"


@pytest.mark.usefixtures("quick")
def test_an_existing_folder_is_replaced_only_when_told(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "draft"
    out.mkdir()
    export_draft(tiny_checkpoint, out, backend="quick")  # an empty folder is no loss
    before = (out / "manifest.json").read_bytes()
    with pytest.raises(InvalidRequest, match="--force"):
        export_draft(tiny_checkpoint, out, bits=8, backend="quick")
    assert (out / "manifest.json").read_bytes() == before
    assert export_draft(tiny_checkpoint, out, bits=8, backend="quick", force=True).bits == 8
    assert Manifest.read(out).bits == 8
    assert files(tmp_path) == ["draft", "home"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "out", ["x" * 300, "~nobody-of-that-name/x", "/proc/x"], ids=["long", "nobody", "proc"]
)
def test_places_that_cannot_be(tiny_checkpoint: Path, out: str) -> None:
    with pytest.raises((InvalidRequest, PreparationError), match=r"choose another|not known"):
        export_draft(tiny_checkpoint, Path(out))


@pytest.mark.usefixtures("quick")
def test_force_never_replaces_what_is_no_draft(tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "diary").mkdir()
    (tmp_path / "diary" / "today.txt").write_text("dear diary")
    with pytest.raises(InvalidRequest, match="no draft folder"):
        export_draft(tiny_checkpoint, tmp_path / "diary", backend="quick", force=True)
    with pytest.raises(InvalidRequest, match="is a file"):
        export_draft(tiny_checkpoint, tmp_path / "diary" / "today.txt", backend="quick", force=True)
    assert (tmp_path / "diary" / "today.txt").read_text() == "dear diary"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"bits": 5}, InvalidRequest, "5 bits"),
        ({"context": 129}, InvalidRequest, "1 to 128"),
        ({"context": 0}, InvalidRequest, "1 to 128"),
        ({"backend": "magic"}, InvalidRequest, "magic"),
        ({"source": "/no/where"}, ModelFolderInvalid, "/no/where"),
    ],
)
def test_wrong_arguments(
    tiny_checkpoint: Path,
    tmp_path: Path,
    arguments: dict[str, Any],
    error: type[CosdError],
    message: str,
) -> None:
    source = arguments.pop("source", tiny_checkpoint)
    with pytest.raises(error, match=message):
        export_draft(source, tmp_path / "draft", **{"backend": "quick", **arguments})
    assert files(tmp_path) in ([], ["home"])


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (UnsupportedModel("no"), UnsupportedModel),
        (OSError(28, "No space left on device"), OutOfSpace),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["unsupported", "disk full", "ctrl-c"],
)
def test_a_failed_export_leaves_nothing_and_the_next_succeeds(
    tiny_checkpoint: Path,
    tmp_path: Path,
    quick: type[QuickBackend],
    monkeypatch: pytest.MonkeyPatch,
    raised: BaseException,
    expected: type[BaseException],
) -> None:
    out = tmp_path / "draft"
    monkeypatch.setattr(quick, "error", raised)
    with pytest.raises(expected):
        export_draft(tiny_checkpoint, out, backend="quick")
    assert files(tmp_path) == ["home"]
    monkeypatch.setattr(quick, "error", None)
    export_draft(tiny_checkpoint, out, backend="quick")
    Manifest.read(out).check_files(out)


# Everything heavy is imported once, then each stage has a process of its own to die in.
KILLED = """
import importlib.util, os, signal, sys
from contextlib import contextmanager
from pathlib import Path
import gguf, onnx, torch, transformers.modeling_gguf_pytorch_utils
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
import export.gguf_source, export.quantise
from export.backend_registry import BACKENDS
from export.pipeline import export_draft
spec = importlib.util.spec_from_file_location("made", sys.argv[1])
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
sys.modules["quick_backend"] = made
BACKENDS["quick"] = ("quick_backend", "QuickBackend")
class Killer:
    def __init__(self, left, early):
        self.left, self.early = left, early
    def count(self, early):
        if self.left == 0 and early == self.early:
            os.kill(os.getpid(), signal.SIGKILL)
    @contextmanager
    def stage(self, name, total=None):
        self.count(early=True)
        mine, self.left = self.left, self.left - 1
        yield self
        self.left, inner = mine, self.left
        self.count(early=False)
        self.left = inner
    def advance(self, amount=1): pass
    def note(self, text): pass
source, folder = sys.argv[2], Path(sys.argv[3])
for stage in range(int(sys.argv[4])):
    for early in (True, False):
        case = f"{stage}{'begin' if early else 'end'}"
        if os.fork() == 0:
            os.environ["COSD_HOME"] = str(folder / f"home{case}")
            killer = Killer(stage, early)
            export_draft(source, folder / f"draft{case}", backend="quick", progress=killer)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_kill_9_at_any_stage(
    tiny_gguf: Path,
    tmp_path: Path,
    quick: type[QuickBackend],
    recorder: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From a GGUF file, so that the conversion is among the stages."""
    export_draft(tiny_gguf, tmp_path / "counted", backend="quick", progress=recorder)
    count = len(recorder.stages)
    assert count >= 9
    first = Manifest.read(tmp_path / "counted")
    harness = inspect.getfile(QuickBackend)
    command = [sys.executable, "-c", KILLED, harness, tiny_gguf, tmp_path, str(count)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert run.stdout.split() == [str(-signal.SIGKILL)] * 2 * count
    assert any(tmp_path.rglob("*.partial-*")), "the test must have interrupted something"
    names = [name for name, _ in recorder.stages]
    for stage, moment in product(range(count), ("begin", "end")):
        case = f"{stage}{moment}"
        made, home = tmp_path / f"draft{case}", tmp_path / f"home{case}"
        assert not made.exists(), (names[stage], moment)
        monkeypatch.setenv("COSD_HOME", str(home))
        recorder.stages.clear()
        manifest = export_draft(tiny_gguf, made, backend="quick", progress=recorder)
        manifest.check_files(made, digests=True)
        assert manifest.vocabulary_fingerprint == first.vocabulary_fingerprint
        assert list(tmp_path.glob(f"{made.name}.*")) == []
        assert list(home.rglob("*.partial-*")) == []
        again = dict(recorder.stages)
        for step in ("save the weights", "make the graph", "writing weights in 4 bits"):
            assert (step in again) == (stage <= names.index(step)), (names[stage], moment, step)


@pytest.mark.usefixtures("quick")
def test_a_prepared_draft_is_made_once(
    tiny_checkpoint: Path, home: Path, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(tiny_checkpoint)
    folder = prepare_draft(name, backend="quick", progress=recorder)
    assert folder.parent == home / "drafts"
    assert Manifest.read(folder).bits == 4
    assert "make the graph" in dict(recorder.stages)
    recorder.stages.clear()
    assert prepare_draft(name, backend="quick", progress=recorder) == folder
    assert [name for name, _ in recorder.stages] == ["read the weights"]
    assert prepare_draft(name, backend="quick", bits=8) != folder
    assert prepare_draft(name, backend="quick", context=64) != folder
    (folder / "model.onnx").write_bytes(b"cut")
    recorder.stages.clear()
    prepare_draft(name, backend="quick", progress=recorder)
    assert "make the graph" in dict(recorder.stages), "a damaged folder is made again"
    monkeypatch.setattr(pipeline, "EXPORT", "next")
    recorder.stages.clear()
    prepare_draft(name, backend="quick", progress=recorder)
    assert "make the graph" in dict(recorder.stages)


def test_a_backend_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "absent", ("no_such_package_here.backend", "Backend"))
    with pytest.raises(
        PreparationError, match=r"needs the package no_such_package_here.*\[export\]"
    ):
        load_backend("absent")


def test_a_target_in_place(tiny_checkpoint: Path, home: Path) -> None:
    assert prepare_target(str(tiny_checkpoint)) == tiny_checkpoint


def test_export_with_optimum_computes_what_the_model_computes(
    tiny_checkpoint: Path, tmp_path: Path, home: Path
) -> None:
    import onnxruntime as ort
    import torch
    from transformers import AutoModelForCausalLM

    pytest.importorskip("optimum.exporters.onnx")
    out = tmp_path / "draft"
    manifest = export_draft(tiny_checkpoint, out, bits=32, backend="optimum")
    manifest.check_files(out, digests=True)
    session = ort.InferenceSession(str(out / manifest.graph), providers=["CPUExecutionProvider"])
    ids = np.array([[5, 17, 42, 99, 3]], dtype=np.int64)
    feeds: dict[str, Any] = {}
    for entry in session.get_inputs():
        if "past" in entry.name:
            feeds[entry.name] = np.zeros((1, 2, 0, 8), dtype=np.float32)
        elif "mask" in entry.name:
            feeds[entry.name] = np.ones_like(ids)
        elif "position" in entry.name:
            feeds[entry.name] = np.arange(5)[None]
        else:
            feeds[entry.name] = ids
    logits = session.run(["logits"], feeds)[0]
    assert logits.shape[-1] == manifest.logits_width
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint)
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)).logits[0, -1].numpy()
    np.testing.assert_allclose(logits[0, -1], expected, atol=1e-4)


def test_auto_makes_a_fused_draft_that_the_sdk_runs(
    tiny_checkpoint: Path, tmp_path: Path, home: Path, recorder: Any
) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from edge_sdk.draft.onnx import OnnxDraft

    source, out = tmp_path / "source", tmp_path / "draft"
    # Heads of the tiny checkpoint are narrower than the fused operator takes.
    config = AutoConfig.from_pretrained(tiny_checkpoint, head_dim=16)
    model = AutoModelForCausalLM.from_config(config).eval()
    shutil.copytree(tiny_checkpoint, source)
    model.save_pretrained(source)
    manifest = export_draft(source, out, bits=32, progress=recorder)
    assert manifest.backend == "fused"
    assert any("fused" in note for note in recorder.notes)
    assert files(out) == ["manifest.json", "model.onnx", "model.onnx.data", "tokenizer.json"]
    ids = [5, 17, 42, 99, 3]
    with OnnxDraft.open(out, threads=1) as draft:
        draft.append(ids)
        row = draft.next_logits()
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0, -1].numpy()
    np.testing.assert_allclose(row, expected, atol=1e-4)


@pytest.mark.models
def test_the_real_draft(smollm2_draft_folder: Path) -> None:
    manifest = Manifest.read(smollm2_draft_folder)
    manifest.check_files(smollm2_draft_folder, digests=True)
    assert (manifest.name, manifest.bits, manifest.context) == ("smollm2-135m", 4, 8192)
    assert manifest.logits_width == 49152
    assert manifest.roles["end_of_turn"] == (2,)
    assert manifest.chat is not None
    assert manifest.chat.start.startswith("<|im_start|>system\nYou are a helpful AI assistant")
    vocabulary = read_tokenizer(smollm2_draft_folder, width=manifest.logits_width)
    assert len(vocabulary) == 49152
