"""A target that is asked once for each text, however many drafts read it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge_sdk.vocab import Vocabulary
from export.check.local_target import TargetLaws


class Remembered:
    """Implements `TargetLaws`: logits [V] of texts that were asked for before come from memory,
    a megabyte a token with 262,144 ids."""

    def __init__(self, target: TargetLaws) -> None:
        self._target = target
        self._rows: dict[tuple[str, tuple[int, ...]], NDArray[np.float32]] = {}
        self._prompt = ""
        self._ids: tuple[int, ...] = ()
        self._held: tuple[str, tuple[int, ...]] | None = None  # what the target has read

    @property
    def vocabulary(self) -> Vocabulary:
        return self._target.vocabulary

    def begin(self, prompt: str) -> NDArray[np.float32]:
        self._prompt, self._ids = prompt, ()
        return self._row()

    def extend(self, ids: Sequence[int]) -> NDArray[np.float32]:
        self._ids = (*self._ids, *ids)
        return self._row()

    def _row(self) -> NDArray[np.float32]:
        key = (self._prompt, self._ids)
        if key not in self._rows:
            self._rows[key] = self._ask()
            self._held = key
        return self._rows[key]

    def _ask(self) -> NDArray[np.float32]:
        held = self._held
        if held is not None and held[0] == self._prompt and self._ids[: len(held[1])] == held[1]:
            new = self._ids[len(held[1]) :]
            if new:
                return self._target.extend(new)
        row = self._target.begin(self._prompt)
        return self._target.extend(self._ids) if self._ids else row
