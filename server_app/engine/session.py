"""One text on the server: its tokens, its cache, and how it is generated."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from edge_sdk.errors import SessionLost
from edge_sdk.wire import Finish, Generation
from server_app.methods.base import Pair, ServerHalf

if TYPE_CHECKING:
    from server_app.target.model import TargetModel, TargetSequence

_numbers: Final = itertools.count()


class Session:
    """State of a session. Changed only by the one request whose turn it is.

    The token ids are the truth; the cache holds keys and values of a prefix of them and can
    be dropped at any time.

    Args:
        owner: of the key that opened it; "" for the server itself.

    Attributes:
        number: differs from that of every other session of this process.
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
        owner: str = "",
    ) -> None:
        self.number = next(_numbers)
        self.owner = owner
        self.pair = pair
        self._cache: TargetSequence | None = None
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

    @property
    def cached(self) -> int:
        """Leading tokens of prompt and text that the cache holds."""
        return 0 if self._cache is None else self._cache.length

    @property
    def closed(self) -> bool:
        return self._closed

    def cache(self, target: TargetModel) -> TargetSequence:
        """The cache of this text (engine thread).

        Raises:
            SessionLost: the session was closed meanwhile.
        """
        if self._cache is None:
            self.adopt(target.new_sequence() if not self._closed else None)
        assert self._cache is not None
        return self._cache

    def adopt(self, sequence: TargetSequence | None) -> None:
        """Take a cache that holds a prefix of prompt and text (engine thread).

        Raises:
            SessionLost: the session was closed meanwhile.
        """
        if self._closed or sequence is None:
            raise SessionLost("the session was closed; open it again")
        self._cache = sequence

    def drop_cache(self, target: TargetModel) -> None:
        """Give the memory back; what is needed is computed again (engine thread)."""
        if self._cache is not None:
            target.release(self._cache)
            self._cache = None

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
        if self._cache is not None and self._cache.length > length:
            target.rollback(self._cache, length)
        return self.cached

    def close(self, target: TargetModel) -> None:
        """Give the cache back for good (engine thread)."""
        self._closed = True
        self.drop_cache(target)
