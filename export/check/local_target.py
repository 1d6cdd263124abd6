"""A target model on this machine, as far as its laws are needed to judge a draft."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_sdk.draft.tokenizer_text import load_tokenizer
from edge_sdk.errors import ModelFolderInvalid
from edge_sdk.vocab import Vocabulary, read_tokenizer
from edge_sdk.vocab.tokenizer_json import TOKENIZER_NAME
from export.checkpoint import read_checkpoint
from export.progress import Progress

_TRIES: Final = 3


class TargetLaws(Protocol):
    """A target whose next-token logits can be asked for, one text at a time."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The target's tokens."""
        ...

    def begin(self, prompt: str) -> NDArray[np.float32]:
        """Start a text; logits [V] after the prompt."""
        ...

    def extend(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Go on with it; logits [V] after the last of `ids`."""
        ...


class LocalTarget:
    """A Hugging Face folder in torch, on a GPU where there is one. Implements `TargetLaws`.

    Args:
        folder: config.json, tokenizer.json and weights.
        dtype: a type of torch by name, or `auto` for that of the file.
        trust_remote_code: Python code that comes with the model may run.
        progress: one stage.

    Raises:
        ModelFolderInvalid: the model cannot be loaded.
        ModelError: as `read_checkpoint` and `read_tokenizer`.
    """

    def __init__(
        self, folder: Path, *, dtype: str = "auto", trust_remote_code: bool, progress: Progress
    ) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        checkpoint = read_checkpoint(folder, trust_remote_code=trust_remote_code)
        self.vocabulary = read_tokenizer(folder, width=checkpoint.logits_width)
        self._tokenizer = load_tokenizer(folder / TOKENIZER_NAME)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        loader: Any = AutoModelForCausalLM
        with progress.stage("load the target"):
            try:
                model = loader.from_pretrained(
                    folder,
                    dtype=dtype,
                    local_files_only=True,
                    trust_remote_code=trust_remote_code,
                )
            except (OSError, ValueError, RuntimeError, KeyError) as error:
                lines = str(error).strip().splitlines() or [type(error).__name__]
                raise ModelFolderInvalid(
                    f"the target {folder} is not a readable model ({lines[0][:300]}); fetch it "
                    "again"
                ) from error
        self._model = model.eval().to(device)
        self._device = device
        # transformers renamed the argument in 5.24.
        names = inspect.signature(model.forward).parameters
        self._cache_name = "past_key_values" if "past_key_values" in names else "cache"
        self._cache: Any = None

    def begin(self, prompt: str) -> NDArray[np.float32]:
        self._cache = None
        return self.extend(self._tokenizer.encode(prompt).ids)

    def extend(self, ids: Sequence[int]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            output = self._model(
                torch.tensor([list(ids)], device=self._device),
                use_cache=True,
                **{self._cache_name: self._cache},
            )
            self._cache = output[self._cache_name]
            row: NDArray[np.float32] = output.logits[0, -1].float().cpu().numpy().copy()
        row[self.vocabulary.masked_ids] = -np.inf
        return row

    def pass_seconds(self, rows: Sequence[int]) -> dict[int, float]:
        """Seconds of a pass over a few tokens after a short text, by how many."""
        found: dict[int, list[float]] = {count: [] for count in rows}
        for _ in range(_TRIES):
            for count in rows:
                self.begin("The harbour was quiet in the early morning.")
                begin = time.perf_counter()
                self.extend([self.vocabulary.ids_by_bytes.get(b" ", 0)] * count)
                found[count].append(time.perf_counter() - begin)
        return {count: median(taken) for count, taken in found.items()}
