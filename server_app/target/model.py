"""What the engine asks of a target model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from edge_sdk.chat import Message
from edge_sdk.vocab import Vocabulary


class TargetSequence(ABC):
    """Cache of one text: how many of its tokens are computed, and where they lie."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Tokens whose keys and values are held."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """New tokens of one sequence in a pass.

    Attributes:
        sequence: where they are appended.
        token_ids: at least one id, in order.
        rows: logits are wanted after each of the last `rows` tokens (0 in mid-prefill).
    """

    sequence: TargetSequence
    token_ids: Sequence[int]
    rows: int


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

        Returns:
            per chunk its logits [rows, V], float32 or the model's dtype, on `device`;
            valid until the next call.
        """

    @abstractmethod
    def rollback(self, sequence: TargetSequence, length: int) -> None:
        """Keep the first `length` tokens; nothing is computed again."""

    @abstractmethod
    def release(self, sequence: TargetSequence) -> None:
        """Give the sequence's memory back. Idempotent."""

    def warm_up(self) -> None:
        """Run passes of the usual shapes once, so that the first request is not slow."""
        sequence = self.new_sequence()
        try:
            self.forward([Chunk(sequence, [0] * 8, 1)])
            self.forward([Chunk(sequence, [0] * 3, 3)])
        finally:
            self.release(sequence)
