"""What an export takes over from an earlier run, what it leaves, and what it asks for first."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from harness.quick_backend import QuickBackend

from edge_sdk.draft.manifest import Manifest
from edge_sdk.errors import CosdError, OutOfSpace, PreparationError
from export import memory, quantise
from export.pipeline import export_draft

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step after the graph fails."""

    def fail(*_: Any, **__: Any) -> None:
        raise PreparationError("broken")

    monkeypatch.setattr(quantise, "quantise_weights", fail)


def made(recorder: Any) -> bool:
    """Whether the graph was made since the last look."""
    found = "make the graph" in dict(recorder.stages)
    recorder.stages.clear()
    return found


def test_a_failed_export_goes_on_from_the_graph(
    tiny_checkpoint: Path, tmp_path: Path, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, work = tmp_path / "draft", tmp_path / "draft.work"

    def export(**options: Any) -> Manifest:
        return export_draft(tiny_checkpoint, out, backend="quick", progress=recorder, **options)

    with monkeypatch.context() as patch:
        patch.setattr(quantise, "quantise_weights", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export()
    assert made(recorder)
    assert not out.exists()
    assert [path.name for path in work.iterdir()] == ["graph"]
    assert any("goes on from there" in note and str(work) in note for note in recorder.notes)
    # Another number of bits needs the same graph.
    export(bits=8).check_files(out, digests=True)
    assert not made(recorder)
    assert any("Taken over" in note for note in recorder.notes)
    assert not work.exists()


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("change", ["context", "weights", "config", "damage", "nothing"])
def test_only_the_same_graph_is_taken_over(
    tiny_checkpoint: Path, tmp_path: Path, recorder: Any, change: str
) -> None:
    source, out = tmp_path / "source", tmp_path / "draft"
    shutil.copytree(tiny_checkpoint, source)
    options: dict[str, Any] = {"backend": "quick", "progress": recorder}
    with pytest.raises(PreparationError, match="broken"):
        export_draft(source, out, **options)
    assert made(recorder)
    if change == "context":
        options["context"] = 64
    elif change == "weights":
        weights = source / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    elif change == "config":
        config = source / "config.json"
        config.write_text(config.read_text().replace('"rope_theta": 10000.0', '"rope_theta": 5.0'))
    elif change == "damage":
        (tmp_path / "draft.work" / "graph" / "decoder.onnx").write_bytes(b"cut")
    with pytest.raises(PreparationError, match="broken"):
        export_draft(source, out, **options)
    assert made(recorder) == (change != "nothing")


def test_interrupted_before_anything_was_finished(
    tiny_checkpoint: Path,
    tmp_path: Path,
    quick: type[QuickBackend],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quick, "error", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        export_draft(tiny_checkpoint, tmp_path / "draft", backend="quick")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize(
    ("attribute", "value", "error", "message"),
    [
        ("available_memory", lambda: 400_000_000, PreparationError, r"GB of memory, only 0\.4 GB"),
        ("disk", 1000, OutOfSpace, r"needs \d+ MB in .*draft\.work.* another disk"),
    ],
)
def test_too_little_is_said_before_the_work_starts(
    tiny_checkpoint: Path,
    tmp_path: Path,
    recorder: Any,
    monkeypatch: pytest.MonkeyPatch,
    attribute: str,
    value: Any,
    error: type[CosdError],
    message: str,
) -> None:
    if attribute == "disk":
        usage = shutil.disk_usage(tmp_path)._replace(free=value)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    else:
        monkeypatch.setattr(memory, attribute, value)
    with pytest.raises(error, match=message):
        export_draft(tiny_checkpoint, tmp_path / "draft", backend="quick", progress=recorder)
    assert [name for name, _ in recorder.stages] == ["read the weights", "read the vocabulary"]
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    machine = memory.available_memory()
    assert machine > 0
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("100\n")
    assert memory.available_memory() > 1000
    (tmp_path / "memory.max").write_text("1100\n")
    assert memory.available_memory() == 1000
