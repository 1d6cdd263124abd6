"""A draft whose forward passes are timed."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge_sdk.draft.model import DraftModel
from edge_sdk.draft.pruned_head import PrunedHead
from edge_sdk.draft.text import DraftText
from edge_sdk.vocab import Vocabulary


class TimedDraft(DraftModel):
    """Another draft, which stays the caller's to close.

    Attributes:
        seconds: in its forward passes so far.
        begun: how many there were, one under way included.
        busy: one is under way.
    """

    def __init__(self, inner: DraftModel) -> None:
        self._inner = inner
        self.seconds = 0.0
        self.begun = 0
        self.busy = False

    @property
    def vocabulary(self) -> Vocabulary:
        return self._inner.vocabulary

    @property
    def pruned(self) -> PrunedHead | None:
        return self._inner.pruned

    @property
    def text(self) -> DraftText:
        return self._inner.text

    @property
    def context(self) -> int:
        return self._inner.context

    @property
    def length(self) -> int:
        return self._inner.length

    def append(self, ids: Sequence[int]) -> None:
        self._inner.append(ids)

    def next_logits(self) -> NDArray[np.float32]:
        begin = time.perf_counter()
        self.begun += 1
        self.busy = True
        try:
            return self._inner.next_logits()
        finally:
            self.busy = False
            self.seconds += time.perf_counter() - begin

    def rewind(self, length: int) -> None:
        self._inner.rewind(length)

    def cancel(self) -> None:
        self._inner.cancel()

    def close(self) -> None:
        return
