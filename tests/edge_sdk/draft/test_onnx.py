"""Passes of the draft on onnxruntime: logits, rewinding, pieces, faults."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.draft import onnx as _onnx
from edge_sdk.draft import onnx_decoder as _decoder
from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.errors import (
    InvalidRequest,
    ModelError,
    ModelFolderInvalid,
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
