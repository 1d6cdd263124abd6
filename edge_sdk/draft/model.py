"""What the draft loop asks of a draft model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edge_sdk.closing import Closing
from edge_sdk.draft.pruned_head import PrunedHead
from edge_sdk.draft.text import DraftText

if TYPE_CHECKING:
    from edge_sdk.vocab import Vocabulary


class DraftModel(Closing):
    """A causal language model with a cache, for one text at a time.

    The model holds a list of token ids. `append` adds to it without computing,
    `next_logits` computes whatever is not in the cache yet in one pass, and
    `rewind` drops ids from the end without computing anything again.
    Not safe for use from two threads at once.
    """

    @property
    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """The draft's tokens; as long as the logits are wide, or longer if `pruned`."""

    @property
    def pruned(self) -> PrunedHead | None:
        """The common vocabulary whose tokens alone the logits are of, by rank; None: they are
        of all ids."""
        return None

    @property
    @abstractmethod
    def text(self) -> DraftText:
        """How text and chat messages become ids of this model."""

    @property
    @abstractmethod
    def context(self) -> int:
        """Most ids the model can hold."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Number of ids held, computed or not."""

    @abstractmethod
    def append(self, ids: Sequence[int]) -> None:
        """Add ids at the end.

        Raises:
            InvalidRequest: an id is out of range, or the context would overflow.
        """

    @abstractmethod
    def next_logits(self) -> NDArray[np.float32]:
        """Logits of the token after the last id [V_D], or [|V_C|] if `pruned`. Valid until the
        next call.

        Raises:
            InvalidRequest: no id is held.
        """

    @abstractmethod
    def rewind(self, length: int) -> None:
        """Keep the first `length` ids.

        Raises:
            InvalidRequest: `length` is negative or above the present length.
        """

    def cancel(self) -> None:
        """Make a pass under way end soon, by an error; safe from any thread. Nothing happens
        between passes, or in a model whose passes are too short for it."""
        return

    def reset(self) -> None:
        """Forget every id."""
        self.rewind(0)

    @abstractmethod
    def close(self) -> None:
        """Free the memory of the model. Idempotent; no other call is allowed after it."""
