"""One text on the server: its tokens, its cache, and how it is generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from edge_sdk.errors import SessionLost
from edge_sdk.wire import Finish, Generation
from server_app.methods.base import Pair, ServerHalf

if TYPE_CHECKING:
    from server_app.target.model import TargetModel, TargetSequence


class Session:
    """State of a session. Changed only by the one request whose turn it is.

    The token ids are the truth; the cache holds keys and values of a prefix of them and can
    be dropped at any time.

    Attributes:
        generated: target ids of the text, position t at index t.
        awaits_device: the last block was rejected and the device settles the position.
        asked: further blocks that the device asked for since then.
        last_sequence: number of the last verify that was carried out.
        last_full: whether that one was accepted whole, so that a block may build on it.
    """

    def __init__(
        self,
        *,
        prompt_ids: Sequence[int],
        generation: Generation,
        half: ServerHalf,
        pair: Pair | None,
        generated: Sequence[int] = (),
    ) -> None:
        self.pair = pair
        self._cache: TargetSequence | None = None
        self._masked: torch.Tensor | None = None
        self._closed = False
        self._begin(prompt_ids, generation, half, generated)

    def _begin(
        self,
        prompt_ids: Sequence[int],
        generation: Generation,
        half: ServerHalf,
        generated: Sequence[int],
    ) -> None:
        self.prompt_ids = list(prompt_ids)
        self.generated = list(generated)
        self.generation = generation
        self.half = half
        self.awaits_device = False
        self.asked = 0
        self.last_sequence = -1
        self.last_full = False

    @property
    def length(self) -> int:
        """Tokens of prompt and text."""
        return len(self.prompt_ids) + len(self.generated)

    @property
    def last_token(self) -> int:
        return self.generated[-1] if self.generated else self.prompt_ids[-1]

    def tokens_from(self, start: int, stop: int) -> list[int]:
        """Ids of prompt and text in [start, stop)."""
        prompt = len(self.prompt_ids)
        return [
            *self.prompt_ids[start:stop],
            *self.generated[max(0, start - prompt) : max(0, stop - prompt)],
        ]

    def commit(self, token: int) -> None:
        self.generated.append(token)

    def room(self, context: int) -> int:
        """Drafted tokens that can still be examined: up to max_tokens and the context."""
        return max(
            0,
            min(self.generation.max_tokens - len(self.generated), context - self.length),
        )

    def finish(self, target: TargetModel) -> Finish:
        """Why the text is complete, `Finish.NONE` if it goes on."""
        if self.generated and self.generated[-1] in target.vocabulary.end_ids:
            return Finish.END
        if len(self.generated) >= self.generation.max_tokens:
            return Finish.LENGTH
        if self.length >= target.context:
            return Finish.CONTEXT
        return Finish.NONE

    def cache(self, target: TargetModel) -> TargetSequence:
        """The cache of this text (engine thread).

        Raises:
            SessionLost: the session was closed meanwhile.
        """
        if self._closed:
            raise SessionLost("the session was closed; open it again")
        if self._cache is None:
            self._cache = target.new_sequence()
        return self._cache

    def masked(self, target: TargetModel) -> torch.Tensor:
        if self._masked is None:
            self._masked = torch.tensor(
                target.vocabulary.masked_ids.tolist(), dtype=torch.int64, device=target.device
            )
        return self._masked

    def truncate(self, length: int) -> None:
        """Keep the first `length` generated tokens."""
        del self.generated[length:]
        self.half.forget()
        self.awaits_device = False
        self.last_full = False

    def extend(self, prompt_ids: Sequence[int], generation: Generation, half: ServerHalf) -> int:
        """Take a new prompt in full; returns the leading ids it shares with the old text."""
        old = self.tokens_from(0, self.length)
        self._begin(prompt_ids, generation, half, ())
        shared = 0
        for before, after in zip(old, self.prompt_ids, strict=False):
            if before != after:
                break
            shared += 1
        return shared

    def trim_cache(self, target: TargetModel, length: int) -> int:
        """Drop cached tokens past `length` (engine thread); returns how many are left."""
        if self._cache is None:
            return 0
        if self._cache.length > length:
            target.rollback(self._cache, length)
        return self._cache.length

    def close(self, target: TargetModel) -> None:
        """Give the cache back for good (engine thread)."""
        self._closed = True
        if self._cache is not None:
            target.release(self._cache)
            self._cache = None
