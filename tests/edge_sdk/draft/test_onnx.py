from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from edge_sdk.draft import onnx as _onnx
from edge_sdk.draft import onnx_decoder as _decoder
from edge_sdk.draft.manifest import Manifest
from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.errors import (
    InvalidRequest,
    ManifestMismatch,
    ModelError,
    ModelFolderInvalid,
    TokenizerUnsupported,
    UnsupportedModel,
)

Folder = Callable[..., Path]
onnx_module: Any = _onnx
decoder_module: Any = _decoder


@pytest.fixture
def draft(exported: Any) -> Iterator[OnnxDraft]:
    with OnnxDraft.open(exported.folder, threads=1) as draft:
        yield draft


def spy(draft: OnnxDraft, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens of each pass from now on."""
    passes: list[int] = []
    run = draft._decoder.extend

    def record(ids: list[int], **options: Any) -> Any:
        passes.append(len(ids))
        return run(ids, **options)

    monkeypatch.setattr(draft._decoder, "extend", record)
    return passes


def test_logits_are_those_of_transformers_at_every_length(exported: Any, draft: OnnxDraft) -> None:
    ids = np.random.default_rng(1).integers(0, 260, 40).tolist()
    for count, token_id in enumerate(ids, 1):
        draft.append([token_id])
        assert np.abs(draft.next_logits() - exported.logits(ids[:count])).max() < 1e-4


def test_random_rounds_of_acceptance_and_rejection(exported: Any, draft: OnnxDraft) -> None:
    random = np.random.default_rng(2)
    text = random.integers(0, 260, 9).tolist()
    draft.append(text)
    for _ in range(40):
        for token_id in random.integers(0, 260, random.integers(1, 6)).tolist():
            text.append(token_id)
            draft.append([token_id])
            if random.random() < 0.8:
                draft.next_logits()
        kept = int(random.integers(max(0, len(text) - 7), len(text) + 1))
        del text[kept:]
        draft.rewind(kept)
        if random.random() < 0.7 or not text:
            settled = random.integers(0, 260, random.integers(1, 4)).tolist()
            text += settled
            draft.append(settled)
        assert draft.length == len(text)
        assert np.abs(draft.next_logits() - exported.logits(text)).max() < 1e-4


def test_rewinding_computes_nothing_again(
    draft: OnnxDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft.append(list(range(20)))
    draft.next_logits()
    passes = spy(draft, monkeypatch)
    for token_id in (1, 2, 3):
        draft.append([token_id])
        draft.next_logits()
    draft.rewind(20)  # everything rejected
    draft.append([4])
    draft.next_logits()
    draft.next_logits()
    assert passes == [1, 1, 1, 1]
    draft.rewind(12)  # nothing pending: only the last token goes in again
    draft.next_logits()
    draft.append([5, 6, 7])
    draft.next_logits()
    assert passes[4:] == [1, 3]


def test_long_prompts_go_in_by_pieces(
    exported: Any, draft: OnnxDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = spy(draft, monkeypatch)
    ids = np.random.default_rng(3).integers(0, 260, 300).tolist()
    draft.append(ids)
    assert np.abs(draft.next_logits() - exported.logits(ids)).max() < 1e-4
    assert passes == [256, 44]
    assert draft.length == 300


@pytest.mark.parametrize(("arena", "asked"), [("cpu:0", [0, 17, 300]), ("cpu:9", [0])])
def test_only_the_end_of_a_prompt_shrinks_the_arena(
    bag_folder: Folder, monkeypatch: pytest.MonkeyPatch, arena: str, asked: list[int]
) -> None:
    """Opening asks once; an onnxruntime without an arena refuses, as it refuses one that is not."""
    shrunk: list[int] = []
    length = 0

    class Options(onnxruntime.RunOptions):  # type: ignore[misc]
        def add_run_config_entry(self, key: str, value: str) -> None:
            assert value == "cpu:0"
            super().add_run_config_entry(key, arena)
            shrunk.append(length)

    monkeypatch.setattr(onnxruntime, "RunOptions", Options)
    with OnnxDraft.open(bag_folder(), threads=1) as draft:
        for length in (1, 16, 17, 300):
            draft.reset()
            draft.append([7] * length)
            assert np.isfinite(draft.next_logits()).all()
    assert shrunk == asked


def test_graphs_with_all_rows_of_logits_take_small_pieces(
    exported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    monkeypatch.setattr(decoder_module, "_LOGITS_BYTES", 10 * 4 * 272)
    read = onnx_module.DecoderGraph.read
    with OnnxDraft.open(exported.folder, threads=1) as draft:
        assert draft._decoder.most_rows == 256
    monkeypatch.setattr(
        onnx_module.DecoderGraph,
        "read",
        lambda *session: replace(read(*session), every_row=True),
    )
    session = onnx_module.open_session(exported.folder / "model.onnx", threads=1, spin=False)
    wide = OnnxDraft(session, vocabulary=draft.vocabulary, text=draft.text, context=384)
    assert wide._decoder.most_rows == 10


def test_last_logits_are_kept_and_may_be_written(draft: OnnxDraft) -> None:
    draft.append([1, 2])
    first = draft.next_logits()
    expected = first.copy()
    first[:] = 0.0
    assert np.array_equal(draft.next_logits(), expected)
    assert first.dtype == np.float32
    assert first.shape == (len(draft.vocabulary),)


def test_the_context_may_be_filled_and_not_passed(draft: OnnxDraft) -> None:
    draft.append([5] * draft.context)
    assert np.isfinite(draft.next_logits()).all()
    with pytest.raises(InvalidRequest, match="context"):
        draft.append([5])
    draft.reset()
    draft.append([5])


def test_wrong_ids_and_lengths(draft: OnnxDraft) -> None:
    with pytest.raises(InvalidRequest, match="no id"):
        draft.next_logits()
    with pytest.raises(InvalidRequest, match="272"):
        draft.append([272])
    with pytest.raises(InvalidRequest, match="rewind"):
        draft.rewind(1)


def test_closing_is_final_and_may_be_repeated(exported: Any) -> None:
    draft = OnnxDraft.open(exported.folder, threads=1)
    draft.append([1])
    draft.close()
    draft.close()
    with pytest.raises(ModelError, match="closed"):
        draft.next_logits()


@pytest.mark.parametrize(
    "options",
    [
        {"names": ("key_cache_0", "key_cache_out_0")},
        {"names": ("anything", "else")},
        {"half": True},
        {"ids": "int32"},
        {"extra": "attention_mask"},
        {"extra": "position_ids"},
        {"axis": 1},
    ],
    ids=str,
)
def test_graphs_of_other_exporters(bag_folder: Folder, options: dict[str, Any]) -> None:
    with OnnxDraft.open(bag_folder(**options), threads=1) as draft:
        draft.append([3, 9, 27])
        draft.next_logits()
        draft.rewind(1)
        draft.append([81])
        stepped = draft.next_logits()
        draft.reset()
        draft.append([3, 81])
        assert np.allclose(draft.next_logits(), stepped, atol=1e-2 if options.get("half") else 1e-5)


def test_an_input_that_nobody_can_feed(bag_folder: Folder) -> None:
    with pytest.raises(UnsupportedModel, match="beam_index"):
        OnnxDraft.open(bag_folder(extra="beam_index"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers(bag_folder: Folder, value: float) -> None:
    with pytest.raises(ModelFolderInvalid, match="not numbers"):
        OnnxDraft.open(bag_folder(value=value))


def test_failed_passes_lose_no_ids(draft: OnnxDraft, monkeypatch: pytest.MonkeyPatch) -> None:
    draft.append([1, 2, 3])
    before = draft.next_logits()
    draft.append([4])

    class Stopped:
        terminate = True

        def __new__(cls) -> Any:
            options = real()
            options.terminate = True
            return options

    real = decoder_module.onnxruntime.RunOptions
    monkeypatch.setattr(decoder_module.onnxruntime, "RunOptions", Stopped)
    with pytest.raises(ModelError, match="onnxruntime"):
        draft.next_logits()
    monkeypatch.undo()
    draft.next_logits()
    draft.rewind(3)
    assert np.allclose(draft.next_logits(), before, atol=1e-5)


def test_cancelling_from_another_thread(bag_folder: Folder) -> None:
    with OnnxDraft.open(bag_folder(), threads=1) as draft:
        draft.cancel()  # nothing runs: nothing happens
        draft.append([1])
        draft.next_logits()
        entered = threading.Event()
        seen: list[bool] = []

        class Session:
            def run_with_iobinding(self, binding: object, options: Any) -> None:
                entered.set()
                while not options.terminate:
                    pass
                seen.append(True)

        session: Any = Session()
        binding: Any = None
        thread = threading.Thread(target=lambda: draft._decoder._run(session, binding))
        thread.start()
        assert entered.wait(10)
        draft.cancel()
        thread.join(10)
        assert seen == [True]


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match="does not exist"):
        OnnxDraft.open(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_missing_and_truncated_files(bag_folder: Folder, name: str, damage: str) -> None:
    folder = bag_folder()
    if damage == "missing":
        (folder / name).unlink()
    else:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelFolderInvalid, match=name):
        OnnxDraft.open(folder)


def test_a_graph_that_is_none(bag_folder: Folder, remake_manifest: Callable[..., None]) -> None:
    folder = bag_folder()
    (folder / "model.onnx").write_bytes(b"not a graph at all")
    remake_manifest(folder)
    with pytest.raises(ModelFolderInvalid, match="onnxruntime cannot load"):
        OnnxDraft.open(folder)


def test_weights_shorter_than_the_graph_says(
    bag_folder: Folder, remake_manifest: Callable[..., None]
) -> None:
    folder = bag_folder()
    data = (folder / "model.onnx.data").read_bytes()
    (folder / "model.onnx.data").write_bytes(data[: len(data) // 2])
    remake_manifest(folder)
    with pytest.raises(ModelFolderInvalid, match="onnxruntime cannot load"):
        OnnxDraft.open(folder)


def test_a_graph_of_another_width(bag_folder: Folder) -> None:
    with pytest.raises(ManifestMismatch, match=r"272 logits.*280"):
        OnnxDraft.open(bag_folder(manifest={"logits_width": 280}))


def test_a_tokenizer_of_another_export(
    bag_folder: Folder,
    remake_manifest: Callable[..., None],
    remake_tokenizer: Callable[..., None],
) -> None:
    folder = bag_folder()
    fingerprint = Manifest.read(folder).vocabulary_fingerprint
    size = (folder / "tokenizer.json").stat().st_size
    remake_tokenizer(folder, first_word="tha")
    assert (folder / "tokenizer.json").stat().st_size == size
    with pytest.raises(ManifestMismatch, match="SHA-256"):
        OnnxDraft.open(folder)
    remake_manifest(folder, vocabulary_fingerprint=fingerprint)
    with pytest.raises(ManifestMismatch, match="fingerprint"):
        OnnxDraft.open(folder)


def test_changed_weights_of_the_same_size(bag_folder: Folder) -> None:
    folder = bag_folder()
    weights = folder / "model.onnx.data"
    data = bytearray(weights.read_bytes())
    data[100] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ManifestMismatch, match=r"model\.onnx\.data does not have the SHA-256"):
        OnnxDraft.open(folder)


def test_a_tokenizer_without_merges(
    bag_folder: Folder, remake_manifest: Callable[..., None]
) -> None:
    folder = bag_folder()
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text("utf-8"))
    del document["model"]["merges"]
    path.write_text(json.dumps(document), "utf-8")
    remake_manifest(folder)
    with pytest.raises(TokenizerUnsupported, match=r"tokenizer\.json cannot be loaded"):
        OnnxDraft.open(folder)


@pytest.mark.parametrize("threads", [-1, 0, 257, 100_000, 10**11])
def test_threads_are_bounded(bag_folder: Folder, threads: int) -> None:
    with pytest.raises(InvalidRequest, match="use 1 to 256"):
        OnnxDraft.open(bag_folder(), threads=threads)


MEMORY = """
import sys
from pathlib import Path
import numpy as np
import onnxruntime
from edge_sdk.draft.onnx import OnnxDraft

def resident(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) / 1024

folder = Path(sys.argv[1])
weights = (folder / "model.onnx.data").stat().st_size / 2**20
with OnnxDraft.open(folder, threads=1) as draft:
    pass
before = resident("VmRSS")
draft = OnnxDraft.open(folder, threads=1)
draft.append([1, 2, 3])
draft.next_logits()
held = resident("VmRSS") - before
peak = resident("VmHWM") - before
draft.close()
left = resident("VmRSS") - before
print(weights, held, peak, left)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_weights_are_held_once_and_given_back(bag_folder: Folder) -> None:
    folder = bag_folder(width=20_000, head=512, manifest={"logits_width": 20_000})
    output = subprocess.run(
        [sys.executable, "-c", MEMORY, str(folder)], capture_output=True, text=True, check=True
    ).stdout
    weights, held, peak, left = map(float, output.split())
    assert weights > 150
    assert held < 1.2 * weights
    assert peak < 1.7 * weights  # the head is repacked while its file is still mapped
    assert left < 0.1 * weights
