"""The pair of models that a measurement runs, made ready once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from edge_sdk.draft.model import DraftModel
from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.draft.onnx_session import default_threads
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.draft.toy_text import toy_byte_vocabulary
from edge_sdk.errors import InvalidRequest
from export.console import TerminalProgress
from export.packaged import PACKAGED_MODELS
from export.pipeline import prepare_draft, prepare_target

TARGET: Final = "gemma3-270m"
DRAFT: Final = "smollm2-135m"
_TOY_WORDS: Final = (b" the", b" a", b" of", b"ing", b" it")
_TRIAL_STEPS: Final = 12
_CLEARLY: Final = 1.3


@dataclass(frozen=True, slots=True)
class Pair:
    """Where the two models are: folders, or `toy:SEED`."""

    target: str
    draft: str


def prepare_pair(target: str, draft: str, *, console: Console) -> Pair:
    """Make both ready, with bars for a person and the terms of whoever made them.

    Raises:
        ModelError, PreparationError: see `prepare_target` and `prepare_draft`.
    """
    for name in (target, draft):
        packaged = PACKAGED_MODELS.get(name)
        if packaged is not None and packaged.terms:
            console.print(f"{packaged.title}: {packaged.terms}", markup=False, highlight=False)
    with TerminalProgress(Console(stderr=True)) as progress:
        return Pair(
            target if _is_toy(target) else _path(prepare_target(target, progress=progress)),
            draft if _is_toy(draft) else _path(prepare_draft(draft, progress=progress)),
        )


def open_draft(draft: str, *, threads: int | None = None) -> DraftModel:
    """The draft of a pair.

    Args:
        threads: threads of a pass; None tries one thread and all cores, and takes one unless
            all are clearly faster. A decode step is many small products: a second thread
            gains a fifth while its core is idle, and doubles the time as soon as it is not.

    Raises:
        InvalidRequest: the seed of a toy is no number, or threads is below 1.
        ModelError: see `OnnxDraft.open`.
    """
    if _is_toy(draft):
        seed = draft.partition(":")[2] or "0"
        if not (seed.isascii() and seed.isdigit()):
            raise InvalidRequest(
                f"{draft!r} is not a toy model: write toy:SEED with a whole number", field="draft"
            )
        return ToyDraft.random(int(seed), toy_byte_vocabulary(_TOY_WORDS))
    folder = Path(draft)
    if threads is not None:
        return OnnxDraft.open(folder, threads=threads)
    one = OnnxDraft.open(folder, threads=1)
    if default_threads() == 1:
        return one
    many = OnnxDraft.open(folder)
    alone, together = _step_seconds(one, many)
    kept, left = (many, one) if alone > _CLEARLY * together else (one, many)
    left.close()
    return kept


def _path(folder: Path) -> str:
    # The server may run in another folder.
    return str(folder.absolute())


def _is_toy(name: str) -> bool:
    return name.partition(":")[0] == "toy"


def _step_seconds(*drafts: DraftModel) -> list[float]:
    """Median seconds of a decode step, the drafts taking turns."""
    for draft in drafts:
        draft.append(draft.text.prompt("Once upon a time there was"))
        draft.next_logits()
    taken: list[list[float]] = [[] for _ in drafts]
    for _ in range(_TRIAL_STEPS):
        for times, draft in zip(taken, drafts, strict=True):
            draft.append([0])
            begin = time.perf_counter()
            draft.next_logits()
            times.append(time.perf_counter() - begin)
    for draft in drafts:
        draft.reset()
    return [float(np.median(times)) for times in taken]
