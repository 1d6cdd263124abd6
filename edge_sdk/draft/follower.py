"""Keeps a draft model in step with the target's text."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_sdk.draft.model import DraftModel
from edge_sdk.vocab import Alignment, Vocabulary

# Tokens before a V_O token that may be encoded again together with it.
_TAIL_TOKENS: Final = 6


@dataclass(frozen=True, slots=True)
class _Piece:
    """Settled text: its bytes and the draft length before it."""

    data: bytes
    start: int


class Follower:
    """The draft's view of the text.

    Tokens of V_C enter the draft as its own ids. A V_O token has none, so its bytes, with
    those of the word before it, are encoded again in mid-text. What the draft has seen
    decides how good its drafts are, never what text comes out.

    When the draft's context is full, it drafts no more.

    Raises:
        VocabularyMismatch: the draft was exported for another pair.
    """

    def __init__(self, model: DraftModel, alignment: Alignment, target: Vocabulary) -> None:
        self.model = model
        self._alignment = alignment
        self._target = target
        self._ids: list[int] = []
        self._pieces: deque[_Piece] = deque(maxlen=_TAIL_TOKENS)
        self._full = False
        if model.pruned is not None:
            model.pruned.check(alignment)
        # Gathering is skipped where the logits are those of V_C, in order.
        ids = alignment.draft_ids
        whole = model.pruned is not None or (
            len(ids) == len(model.vocabulary) and bool((ids == np.arange(len(ids))).all())
        )
        self._gather = None if whole else ids

    @property
    def room(self) -> int:
        """Tokens that can still be drafted."""
        return 0 if self._full else max(0, self.model.context - self.model.length)

    @property
    def mark(self) -> int:
        """Place in the draft to come back to."""
        return self.model.length

    def begin(self, prompt_ids: Sequence[int], data: bytes = b"") -> None:
        """Start a text: prompt ids of the draft, then text that was generated already.
        What the draft holds of it stays warm."""
        ids = [*prompt_ids, *(self.model.text.tail(data) if data else ())]
        self._pieces.clear()
        self._full = not ids or len(ids) >= self.model.context
        if self._full:
            self._rewind(0)
            return
        if self.model.length != len(self._ids):
            self.model.reset()
            self._ids = []
        shared = 0
        for held, wanted in zip(self._ids, ids, strict=False):
            if held != wanted:
                break
            shared += 1
        self._rewind(shared)
        self._append(ids[shared:])

    def logits(self) -> NDArray[np.float32]:
        """Draft logits on V_C by rank [|V_C|]."""
        logits = self.model.next_logits()
        return logits if self._gather is None else logits[self._gather]

    def seen(self) -> NDArray[np.int64]:
        """Ranks that occur in prompt or text."""
        ranks = self._alignment.rank_of_draft[np.unique(np.array(self._ids, dtype=np.int64))]
        return ranks[ranks >= 0]

    def push(self, rank: int) -> None:
        """Append a drafted token."""
        self._append([int(self._alignment.draft_ids[rank])])

    def keep(self, rank: int, mark: int) -> None:
        """Note that the drafted token at `mark` was accepted."""
        target_id = int(self._alignment.target_ids[rank])
        self._pieces.append(_Piece(self._target.pieces[target_id], mark))

    def rewind(self, mark: int) -> None:
        """Drop what was drafted from `mark` on."""
        if not self._full:
            self._rewind(mark)

    def settle(self, token: int) -> None:
        """Append a settled target token."""
        if self._full:
            return
        rank = int(self._alignment.rank_of_target[token])
        piece = self._target.pieces[token]
        if rank >= 0:
            self._add([int(self._alignment.draft_ids[rank])], piece)
        elif piece:
            self._add_tail(piece)

    def _add_tail(self, data: bytes) -> None:
        """Encode `data` again together with the word that it continues."""
        start = self.model.length
        while self._pieces and not data[:1].isspace():
            piece = self._pieces.pop()
            data, start = piece.data + data, piece.start
        self._rewind(start)
        self._add(self.model.text.tail(data), data)

    def _add(self, ids: Sequence[int], data: bytes) -> None:
        if self.model.length + len(ids) >= self.model.context:
            self._full = True
            return
        self._pieces.append(_Piece(data, self.model.length))
        self._append(ids)

    def _append(self, ids: Sequence[int]) -> None:
        self.model.append(ids)
        self._ids.extend(ids)

    def _rewind(self, length: int) -> None:
        if length < self.model.length:
            self.model.rewind(length)
        del self._ids[length:]
