"""A draft model without weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edge_sdk.draft.model import DraftModel
from edge_sdk.draft.text import DraftText
from edge_sdk.draft.token_list import TokenList
from edge_sdk.draft.toy_table import ToyTable
from edge_sdk.draft.toy_text import ToyText
from edge_sdk.errors import InvalidRequest, ModelError
from edge_sdk.vocab import Vocabulary


class ToyDraft(DraftModel):
    """A draft whose logits are a function of its ids.

    Args:
        vocabulary: the draft's tokens.
        logits: ids held -> logits [V_D], for instance `ToyTable.logits`.
        context: most ids it can hold.
        text: how text becomes ids; by default greedy longest match.

    Example:
        >>> draft = ToyDraft.random(7, toy_byte_vocabulary([b" the", b" cat"]))
        >>> draft.append(draft.text.prompt("the cat"))
        >>> draft.next_logits().shape
        (259,)
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        logits: Callable[[Sequence[int]], NDArray[np.floating]],
        *,
        context: int = 4096,
        text: DraftText | None = None,
    ) -> None:
        self._vocabulary = vocabulary
        self._logits = logits
        self._context = context
        self._text = text or ToyText(vocabulary)
        self._tokens = TokenList(width=len(vocabulary), context=context)
        self._closed = False

    @classmethod
    def random(
        cls,
        seed: int,
        vocabulary: Vocabulary,
        *,
        order: int = 1,
        spread: float = 2.0,
        context: int = 4096,
    ) -> Self:
        """A draft with the law of `ToyTable.random`."""
        table = ToyTable.random(seed, len(vocabulary), order, spread=spread)
        return cls.from_table(vocabulary, table, context=context)

    @classmethod
    def from_laws(cls, vocabulary: Vocabulary, laws: ArrayLike, *, context: int = 4096) -> Self:
        """A draft with the probabilities of `ToyTable.from_laws`."""
        return cls.from_table(vocabulary, ToyTable.from_laws(laws), context=context)

    @classmethod
    def from_table(cls, vocabulary: Vocabulary, table: ToyTable, *, context: int = 4096) -> Self:
        """A draft with the law of a table.

        Raises:
            InvalidRequest: the table and the vocabulary have different sizes.
        """
        if table.size != len(vocabulary):
            raise InvalidRequest(
                f"the table has {table.size} ids and the vocabulary {len(vocabulary)}",
                field="table",
            )
        return cls(vocabulary, table.logits, context=context)

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    @property
    def text(self) -> DraftText:
        return self._text

    @property
    def context(self) -> int:
        return self._context

    @property
    def length(self) -> int:
        return len(self._tokens)

    def append(self, ids: Sequence[int]) -> None:
        self._tokens.append(ids)

    def next_logits(self) -> NDArray[np.float32]:
        if self._closed:
            raise ModelError("the draft model is closed; open a new one")
        if not self._tokens.ids:
            raise InvalidRequest("the draft holds no id: append a prompt first", field="ids")
        return np.array(self._logits(self._tokens.ids), dtype=np.float32)

    def rewind(self, length: int) -> None:
        self._tokens.rewind(length)

    def close(self) -> None:
        self._closed = True
