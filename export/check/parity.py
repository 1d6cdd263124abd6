"""An exported draft beside the model that it was made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from edge_sdk.draft.model import DraftModel
from edge_sdk.errors import InvalidRequest, ModelFolderInvalid
from export.progress import NoProgress, Progress
from export.sources import SourceFolder

_REWOUND: Final = 8  # tokens dropped and computed again


@dataclass(frozen=True, slots=True)
class Parity:
    """How far the draft's laws are from the source's along a text, at temperature 1.

    Attributes:
        tokens: positions compared.
        max_logit_difference: largest difference of two logits.
        top1: share of positions with the same likeliest token.
        kl: mean KL(source law, draft law) in nats.
        kl_by_position: the same by position, for a plot.
        max_path_difference: largest difference between logits that the draft computes token
            by token and those of a prompt in one pass, or after a rewind. 1e-4 or less in fp32;
            with 4 and 8 bits a pass over many tokens rounds its activations differently.
    """

    tokens: int
    max_logit_difference: float
    top1: float
    kl: float
    kl_by_position: tuple[float, ...]
    max_path_difference: float


def measure_parity(
    source: SourceFolder,
    draft: DraftModel,
    ids: Sequence[int],
    *,
    columns: NDArray[np.int64] | None = None,
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> Parity:
    """Compare next-token laws after each of `ids`.

    Args:
        source: the model that was exported; it is loaded in fp32.
        draft: the exported folder.
        ids: a text, at least two tokens within both contexts.
        columns: ids whose logits the draft gives, in its order; None: all. With some of them
            the laws on these are compared.
        trust_remote_code: Python code that comes with the source may run.
        progress: told of each stage.

    Raises:
        InvalidRequest: fewer than two ids.
        ModelFolderInvalid: the source cannot be loaded.
    """
    if len(ids) < 2:
        raise InvalidRequest("a text of at least two tokens is needed to compare laws", field="ids")
    progress = progress or NoProgress()
    with progress.stage("load the source"):
        model = load_model(source, trust_remote_code=trust_remote_code)
    with progress.stage("compute the source's laws"):
        expected = _rows(model, ids)
    width = expected.shape[1]
    if columns is not None and int(columns.max()) < width:
        expected = np.ascontiguousarray(expected[:, columns])
    if width != len(draft.vocabulary):
        raise InvalidRequest(
            f"the source has {width} logits and the draft {len(draft.vocabulary)}: "
            "they are different models, so give the source that was exported",
            field="source",
        )
    del model
    with progress.stage("compute the draft's laws", len(ids)) as stage:
        computed = np.empty_like(expected)
        draft.reset()
        for position, token in enumerate(ids):
            draft.append([token])
            computed[position] = draft.next_logits()
            stage.advance()
    other = _other_paths(draft, ids, computed)
    return compare(expected, computed, max_path_difference=other)


def compare(
    expected: NDArray[np.float32], computed: NDArray[np.float32], *, max_path_difference: float
) -> Parity:
    """Figures of two sets of logits [T, V_D]."""
    kl = []
    for p, q in zip(expected, computed, strict=True):
        log_p, log_q = _log_law(p), _log_law(q)
        kl.append(max(0.0, float((np.exp(log_p) * (log_p - log_q)).sum())))
    return Parity(
        tokens=len(expected),
        max_logit_difference=float(np.abs(expected - computed).max()),
        top1=float((expected.argmax(axis=1) == computed.argmax(axis=1)).mean()),
        kl=float(np.mean(kl)),
        kl_by_position=tuple(round(value, 6) for value in kl),
        max_path_difference=max_path_difference,
    )


def load_model(source: SourceFolder, *, trust_remote_code: bool = False) -> Any:
    """The transformers model of a source, in fp32, ready to run.

    Raises:
        ModelFolderInvalid: transformers cannot load it.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if source.checkpoint.graph is not None:
        raise ModelFolderInvalid(
            f"{source.path} holds an ONNX graph and no weights that transformers reads; give the "
            "folder of the original model"
        )
    loader: Any = AutoModelForCausalLM
    try:
        model = loader.from_pretrained(
            source.path,
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelFolderInvalid(
            f"{source.path} is not a readable model ({lines[0][:300]}); fetch the model again"
        ) from error
    return model.eval()


def _rows(model: Any, ids: Sequence[int]) -> NDArray[np.float32]:
    import torch

    with torch.no_grad():
        rows: NDArray[np.float32] = model(torch.tensor([list(ids)])).logits[0].float().numpy()
    return rows


def _other_paths(draft: DraftModel, ids: Sequence[int], computed: NDArray[np.float32]) -> float:
    """The last row again, after a rewind and as a prompt in one pass."""
    worst = 0.0
    for kept in (max(1, len(ids) - _REWOUND), 0):
        draft.rewind(kept)
        draft.append(ids[kept:])
        worst = max(worst, float(np.abs(draft.next_logits() - computed[-1]).max()))
    draft.reset()
    return worst


def _log_law(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    values = logits.astype(np.float64)
    values -= values.max()
    law: NDArray[np.float64] = values - np.log(np.exp(values).sum())
    return law
