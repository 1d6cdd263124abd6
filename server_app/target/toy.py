"""A target model without weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from edge_sdk.chat import Message
from edge_sdk.draft.toy_table import ToyTable
from edge_sdk.draft.toy_text import ToyText, toy_byte_vocabulary
from edge_sdk.errors import InvalidRequest, NoChatTemplate
from edge_sdk.vocab import Vocabulary
from server_app.before_loading import LEAST_CACHE
from server_app.target.chunk_check import check_chunks
from server_app.target.model import Chunk, Screen, TargetModel, TargetSequence
from server_app.target.pages import ROLLBACK, LayerGroup, PageBook, PagedSequence

_WORDS = (b" the", b" a", b" of", b" and", b" to", b" in", b"ing", b"er", b". ", b", ")
_RARE = -6.0  # bias of bytes that are not printable ASCII, so that toy text can be looked at
_CACHE_LIMIT = 1_000_000
_SURE = 1e-4  # share by which a bound must be missed: the judge computes the law in float32


class ToyTarget(TargetModel):
    """A target whose logits are a function of a sequence's ids.

    It keeps the same books as a real one, so wrong use fails here too.

    Args:
        vocabulary: the target's tokens.
        logits: ids of a sequence -> logits [V], for instance `ToyTable.logits`.
        name: name of the model.
        context: most ids a sequence can hold.
        dtype: of the logits; float64 where a test compares laws to 1e-9.
        seconds_per_pass: how long a pass takes at least, to play a big model.
        chat: whether chats are rendered (`edge_sdk.chat.plain_rendering`).
        cache_limit: most tokens that all sequences together can hold.
        window: tokens that a row of a sliding window would see. The law does not change, but
            long texts lose what a real model would lose (`rollback`, `fork`).
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        logits: Callable[[Sequence[int]], NDArray[np.floating]],
        *,
        name: str = "toy",
        context: int = 4096,
        dtype: torch.dtype = torch.float32,
        seconds_per_pass: float = 0.0,
        chat: bool = True,
        cache_limit: int = _CACHE_LIMIT,
        window: int | None = None,
    ) -> None:
        if not seconds_per_pass >= 0.0:
            raise InvalidRequest(
                f"seconds per pass {seconds_per_pass} is negative", field="seconds_per_pass"
            )
        self._vocabulary = vocabulary
        self._logits = logits
        self._name = name
        self._context = context
        self._dtype = dtype
        self._seconds_per_pass = seconds_per_pass
        self._chat = chat
        self._text = ToyText(vocabulary)
        # NOTE: pages of one token, so that tests can count.
        self._book = PageBook([LayerGroup(window)], page=1, limit=cache_limit, slack=ROLLBACK)
        self._sequences: dict[PagedSequence, list[int]] = {}
        self.passes = 0

    @classmethod
    def random(
        cls,
        seed: int,
        vocabulary: Vocabulary | None = None,
        *,
        order: int = 1,
        spread: float = 2.0,
        name: str | None = None,
        context: int = 4096,
        seconds_per_pass: float = 0.0,
        cache_limit: int = _CACHE_LIMIT,
        window: int | None = None,
    ) -> Self:
        """A seeded random target with the law of `ToyTable.random`.

        Args:
            vocabulary: by default the 256 bytes, ten short words and an end token, where
                bytes that cannot be printed are rare.
        """
        if vocabulary is None:
            words = toy_byte_vocabulary(_WORDS)
            bias = {i: _RARE for i in range(256) if not 32 <= i < 127}
            table = ToyTable.random(seed, len(words), order, spread=spread).biased(bias)
        else:
            words = vocabulary
            table = ToyTable.random(seed, len(words), order, spread=spread)
        return cls.from_table(
            words,
            table,
            name=f"toy:{seed}" if name is None else name,
            context=context,
            seconds_per_pass=seconds_per_pass,
            cache_limit=cache_limit,
            window=window,
        )

    @classmethod
    def from_laws(
        cls,
        vocabulary: Vocabulary,
        laws: ArrayLike,
        *,
        name: str = "toy",
        context: int = 4096,
        dtype: torch.dtype = torch.float64,
    ) -> Self:
        """A target with the probabilities of `ToyTable.from_laws`."""
        table = ToyTable.from_laws(laws)
        return cls.from_table(vocabulary, table, name=name, context=context, dtype=dtype)

    @classmethod
    def from_table(
        cls,
        vocabulary: Vocabulary,
        table: ToyTable,
        *,
        name: str = "toy",
        context: int = 4096,
        dtype: torch.dtype = torch.float32,
        seconds_per_pass: float = 0.0,
        cache_limit: int = _CACHE_LIMIT,
        window: int | None = None,
    ) -> Self:
        """A target with the law of a table.

        Raises:
            InvalidRequest: the table and the vocabulary have different sizes.
        """
        if table.size != len(vocabulary):
            raise InvalidRequest(
                f"the table has {table.size} ids and the vocabulary {len(vocabulary)}",
                field="table",
            )
        return cls(
            vocabulary,
            table.logits,
            name=name,
            context=context,
            dtype=dtype,
            seconds_per_pass=seconds_per_pass,
            cache_limit=cache_limit,
            window=window,
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    @property
    def context(self) -> int:
        return self._context

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    @property
    def has_chat_template(self) -> bool:
        return self._chat

    @property
    def cache_limit(self) -> int:
        return self._book.limit

    def limit_cache(self, tokens: int) -> None:
        if tokens < LEAST_CACHE:
            raise InvalidRequest(
                f"a cache of {tokens} tokens is too small for any text; give it at least "
                f"{LEAST_CACHE}",
                field="cache_tokens",
            )
        self._book.limit = tokens

    @property
    def cache_used(self) -> int:
        return self._book.used

    def encode(self, text: str) -> list[int]:
        return self._text.prompt(text)

    def render(self, messages: Sequence[Message]) -> list[int]:
        if not self._chat:
            raise NoChatTemplate(
                f"{self._name} has no chat template; send a plain prompt", field="messages"
            )
        return self._text.chat(messages)

    def new_sequence(self) -> PagedSequence:
        sequence = self._book.add()
        self._sequences[sequence] = []
        return sequence

    def forward(self, chunks: Sequence[Chunk]) -> list[torch.Tensor]:
        """See `TargetModel.forward`.

        Raises:
            PoolFull: no room for the new tokens.
            PromptTooLong: a sequence would outgrow the context.
            InvalidRequest: a chunk is empty, an id is out of range, more rows than tokens,
                a sequence twice in a pass, or one that is not this model's or was released.
        """
        begin = time.monotonic()
        sequences = [self._owned(chunk.sequence) for chunk in chunks]
        check_chunks(self, chunks)
        ends = {s: s.length + len(c.token_ids) for s, c in zip(sequences, chunks, strict=True)}
        self._book.reserve(ends)
        out = []
        for chunk, sequence in zip(chunks, sequences, strict=True):
            ids = self._sequences[sequence]
            ids.extend(chunk.token_ids)
            self._book.settle(sequence, len(ids))
            first = len(ids) - chunk.rows + 1
            rows = [self._logits(ids[:end]) for end in range(first, len(ids) + 1)]
            stacked = np.array(rows, dtype=np.float64).reshape(len(rows), len(self._vocabulary))
            logits = torch.from_numpy(stacked).to(self._dtype)
            if chunk.screen is not None:
                logits = logits[: self._examined(logits, chunk.screen)]
            out.append(logits)
        if chunks:
            self.passes += 1
            left = self._seconds_per_pass - (time.monotonic() - begin)
            if left > 0:
                time.sleep(left)
        return out

    def _examined(self, logits: torch.Tensor, screen: Screen) -> int:
        """Rows [rows, V] up to the first that surely refuses its token; all if there is none."""
        masked = self._vocabulary.masked_ids
        judged = zip(logits, screen.tokens, screen.refused_up_to, strict=False)
        for number, (row, token, bound) in enumerate(judged, start=1):
            law = row.double().numpy().copy()
            law[masked] = -np.inf
            law -= law.max()
            if screen.temperature:
                law = np.exp(law / screen.temperature)
                if law[token] <= (1 - _SURE) * bound * law.sum():
                    return number
            elif law[token] < 0:
                return number
        return len(logits)

    def rollback(self, sequence: TargetSequence, length: int) -> None:
        """See `TargetModel.rollback`.

        Raises:
            InvalidRequest: `length` is negative or above the present length, or the sequence
                is not this model's or was released.
        """
        owned = self._owned(sequence)
        self._book.truncate(owned, length)
        del self._sequences[owned][owned.length :]

    def fork(self, sequence: TargetSequence, length: int) -> PagedSequence:
        """See `TargetModel.fork`.

        Raises:
            InvalidRequest: as for `rollback`.
        """
        owned = self._owned(sequence)
        other = self._book.fork(owned, length)
        self._sequences[other] = self._sequences[owned][: other.length]
        return other

    def release(self, sequence: TargetSequence) -> None:
        if isinstance(sequence, PagedSequence) and sequence in self._sequences:
            self._book.remove(sequence)
            del self._sequences[sequence]

    def _owned(self, sequence: TargetSequence) -> PagedSequence:
        if not isinstance(sequence, PagedSequence) or sequence not in self._sequences:
            raise InvalidRequest(
                f"the sequence was released, or is not one of {self._name}", field="sequence"
            )
        return sequence
