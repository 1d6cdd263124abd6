"""What the engine asks of a target model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from edge_sdk.chat import Message
from edge_sdk.errors import ServerUnavailable
from edge_sdk.vocab import Vocabulary

_MANY = 16  # verifies in a pass of a server that is in use


class PoolFull(ServerUnavailable):
    """No room for the keys and values of a pass. Nothing was changed: the engine can
    release a sequence and run the same pass again."""


class TargetSequence(ABC):
    """Cache of one text: how many of its tokens are computed, and where they lie."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Tokens whose keys and values are held."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Tokens that rows of a chunk are there to judge, one after the other up to the first that
    is refused. Rows after that one are never looked at.

    Attributes:
        tokens: ids [n]; the first n rows of the chunk judge one each.
        refused_up_to: probabilities [n], above 0 where anything is known; a token that its row
            gives no more is refused.
        temperature: of the rows' laws, which nothing else but masks shapes. At 0 a law is
            certain of the likeliest id.
    """

    tokens: Sequence[int]
    refused_up_to: Sequence[float]
    temperature: float


@dataclass(frozen=True, slots=True)
class Chunk:
    """New tokens of one sequence in a pass.

    Attributes:
        sequence: where they are appended.
        token_ids: at least one id, in order.
        rows: logits are wanted after each of the last `rows` tokens (0 in mid-prefill).
        screen: which of these rows need not be computed.
    """

    sequence: TargetSequence
    token_ids: Sequence[int]
    rows: int
    screen: Screen | None = None


class TargetModel(ABC):
    """A causal language model that verifies. Used from one thread only, except for the
    properties and `encode` and `render`, which are safe from any thread."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """As long as the logits are wide."""

    @cached_property
    def masked(self) -> torch.Tensor:
        """int64 ids that no law contains, on `device`."""
        ids = self.vocabulary.masked_ids.tolist()
        return torch.tensor(ids, dtype=torch.int64, device=self.device)

    @property
    @abstractmethod
    def context(self) -> int:
        """Most tokens a sequence can hold."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype: ...

    @property
    @abstractmethod
    def has_chat_template(self) -> bool: ...

    @property
    @abstractmethod
    def cache_limit(self) -> int:
        """Most tokens that all sequences together can hold."""

    @abstractmethod
    def limit_cache(self, tokens: int) -> None:
        """Hold at most so many tokens. Before the first sequence.

        Raises:
            InvalidRequest: memory is too small for that, or no pass would fit.
        """

    @property
    @abstractmethod
    def cache_used(self) -> int:
        """Tokens for which memory is taken: whole pages, those that sequences share once, and
        without what sliding windows have left behind. 0 when every sequence is released."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids of a plain prompt, with the beginning token if the model wants one."""

    @abstractmethod
    def render(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a chat up to where the assistant speaks.

        Raises:
            NoChatTemplate: the model has none and no plain rendering was configured.
        """

    @abstractmethod
    def new_sequence(self) -> TargetSequence: ...

    @abstractmethod
    def forward(self, chunks: Sequence[Chunk]) -> list[torch.Tensor]:
        """Append every chunk and compute in one pass.

        An error leaves every sequence as it was.

        Returns:
            per chunk its logits [rows, V], float32 or the model's dtype, on `device`;
            valid until the next call. A chunk with a screen may get fewer rows: at least those
            up to the first whose token is refused.

        Raises:
            PoolFull: no room for the new tokens; release a sequence and try again.
        """

    @abstractmethod
    def rollback(self, sequence: TargetSequence, length: int) -> None:
        """Keep at most the first `length` tokens; nothing is computed again.

        A model with sliding windows may have given back what the next token would see; then
        fewer tokens are kept, possibly none. Read `sequence.length` afterwards and append what
        is missing. Taking back the tokens of the last pass, up to `MAX_DRAFT` and the settled
        one, always keeps exactly `length`.
        """

    @abstractmethod
    def fork(self, sequence: TargetSequence, length: int) -> TargetSequence:
        """A new sequence of at most the first `length` tokens of another, which it shares with
        it: neither sees what the other appends or takes back, and each is released by itself.

        Takes no memory. Holds fewer tokens, possibly none, where `rollback` would keep fewer.
        Whoever wants to begin more texts at some length keeps a fork of that length.
        """

    @abstractmethod
    def release(self, sequence: TargetSequence) -> None:
        """Give the sequence's memory back. Idempotent."""

    def warm_up(self) -> None:
        """Run passes of the usual shapes once, so that no request is slow for being first: a
        prompt, one verify, one token, and many of them together."""
        room = min(self.cache_limit // 2, self.context)
        for count, tokens in ((1, 256), (1, 5), (1, 1), (_MANY, 5), (_MANY, 1)):
            tokens = max(1, min(tokens, room // count))
            sequences = [self.new_sequence() for _ in range(min(count, max(1, room // tokens)))]
            try:
                rows = 1 if tokens > 5 else tokens
                self.forward([Chunk(sequence, [0] * tokens, rows) for sequence in sequences])
            finally:
                for sequence in sequences:
                    self.release(sequence)
