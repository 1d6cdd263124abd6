"""Target models of the Hugging Face transformers library."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from transformers import PreTrainedModel

from edge_sdk.chat import Message
from edge_sdk.errors import InvalidRequest, UnsupportedModel
from edge_sdk.vocab import Vocabulary
from edge_sdk.vocab.tokenizer_json import read_tokenizer
from server_app.target.attention import PASS
from server_app.target.attention_choice import GROUPED, AttentionKind, choose_attention
from server_app.target.checkpoint import (
    check_weights,
    context_length,
    layer_windows,
    logits_width,
    open_model,
    read_config,
)
from server_app.target.chunk_check import check_chunks
from server_app.target.free_memory import free_bytes, is_out_of_memory
from server_app.target.model import Chunk, PoolFull, TargetModel, TargetSequence
from server_app.target.output_layer import OutputLayer, keep_logits
from server_app.target.packed_batch import PackedBatch
from server_app.target.packed_linear import check_packable, pack_linear_layers
from server_app.target.paged_cache import PAGE, PagedCache
from server_app.target.pages import PagedSequence
from server_app.target.precision import choose_precision
from server_app.target.prompts import PromptText
from server_app.target.screening import Screening
from server_app.target.self_check import check_against_stock
from server_app.target.staging import Staging

logger = logging.getLogger(__name__)

_FIRST_LIMIT = 4 * PAGE  # tokens, until the check has shown how many bytes a token takes
_CACHE_SHARE = 0.25  # of the memory that is free after loading


class HuggingFaceTarget(TargetModel):
    """A stock causal language model over a paged cache.

    Several sequences share a pass: their new tokens are packed into one row of the batch with
    explicit positions, and the output layer runs only for the rows that are asked for. Logits
    are inference tensors: write to them under `torch.inference_mode()` or copy them first.

    Args:
        model: opened with `checkpoint.open_model`.
        vocabulary: as long as the logits are wide.
        prompts: the model's tokenizer.
        name: short name of the model.
        cache_bytes: most memory for keys and values; by default a quarter of what is free.

    Raises:
        UnsupportedModel: a pass over the cache does not agree with the stock model.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        vocabulary: Vocabulary,
        prompts: PromptText,
        *,
        name: str,
        cache_bytes: int | None = None,
    ) -> None:
        self._model: Any = model
        self._vocabulary = vocabulary
        self._prompts = prompts
        self._name = name
        self._context = context_length(model)
        self._device = model.device
        self._dtype = model.dtype
        self._cache = PagedCache(layer_windows(model.config), limit=_FIRST_LIMIT)
        self._attention = GROUPED
        head = self._model.get_output_embeddings()
        self._head = head if isinstance(head, OutputLayer) else None
        self._screens = False

        def check(kind: AttentionKind) -> None:
            self._attention = kind
            check_against_stock(self, self._model)

        choose_attention(self._device, self._dtype, check)
        share = int(free_bytes(self._device) * _CACHE_SHARE)
        memory = share if cache_bytes is None else cache_bytes
        self._cache.bound(memory)
        if self._cache.limit < _FIRST_LIMIT:
            raise InvalidRequest(
                f"a cache of {memory} bytes holds {self._cache.limit} tokens of {name}; give it "
                f"room for at least {_FIRST_LIMIT}",
                field="cache_bytes",
            )

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        name: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        chat_template: str | None = None,
        cache_bytes: int | None = None,
        pack_weights: bool = False,
        progress: Callable[[str], None] = logger.info,
    ) -> Self:
        """Load a checkpoint folder: `config.json`, safetensors weights, `tokenizer.json`.

        Args:
            name: short name; by default that of the folder.
            device: `auto`, or a torch device.
            dtype: `auto`, `bfloat16`, `float16` or `float32`; see `choose_precision`.
            chat_template: `plain` for a documented plain rendering of chats, None for the
                model's own template.
            cache_bytes: most memory for keys and values; by default a quarter of what is
                free after loading.
            pack_weights: lay weights out for 16-bit products on a CPU (`packed_linear`).
            progress: told, in a few words, what is being done.

        Raises:
            ModelFolderInvalid: files are missing, truncated or contradict each other.
            UnsupportedModel: an architecture that cannot run.
            TokenizerUnsupported: tokens without meaning in bytes, or more than the model has.
            InvalidRequest: an option that is not known here.
        """
        label = folder.name if name is None else name
        config = read_config(folder)
        windows = layer_windows(config)
        files = check_weights(folder)
        progress(f"{label}: reading the tokenizer")
        vocabulary = read_tokenizer(folder, width=int(config.get_text_config().vocab_size))
        prompts = PromptText(folder, name=label, chat_template=chat_template)
        precision = choose_precision(device=device, dtype=dtype)
        if pack_weights:
            check_packable(precision.device, precision.dtype)
        size = sum(file.stat().st_size for file in files)
        progress(
            f"{label}: loading {size / 1e6:.0f} MB of weights, {len(windows)} layers, as "
            f"{str(precision.dtype).removeprefix('torch.')} on {precision.device} "
            f"({precision.reason})"
        )
        model = open_model(folder, config, precision)
        if logits_width(model) != len(vocabulary):
            vocabulary = read_tokenizer(folder, width=logits_width(model))
        if pack_weights:
            progress(f"{label}: packing weights")
            pack_linear_layers(model)
        keep_logits(model, vocabulary.masked_ids.tolist())
        progress(f"{label}: checking a pass against the stock model")
        target = cls(model, vocabulary, prompts, name=label, cache_bytes=cache_bytes)
        progress(
            f"{label}: ready, {len(vocabulary)} tokens, context {target.context}, "
            f"attention by {target._attention.name}, cache of at most {target.cache_limit} tokens"
        )
        return target

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
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    @property
    def has_chat_template(self) -> bool:
        return self._prompts.has_chat_template

    @property
    def cache_limit(self) -> int:
        return self._cache.limit

    def limit_cache(self, tokens: int) -> None:
        size = tokens * self._cache.token_bytes
        free = free_bytes(self._device)
        if size > free or tokens < _FIRST_LIMIT:
            raise InvalidRequest(
                f"a cache of {tokens} tokens of {self._name} takes {size / 1e6:.0f} MB, and "
                f"{free / 1e6:.0f} MB are free; give it at least {_FIRST_LIMIT} tokens and no "
                f"more than {free // self._cache.token_bytes}",
                field="cache_tokens",
            )
        self._cache.bound(size)

    @property
    def cache_used(self) -> int:
        return self._cache.used

    def encode(self, text: str) -> list[int]:
        return self._prompts.encode(text)

    def render(self, messages: Sequence[Message]) -> list[int]:
        return self._prompts.render(messages)

    def new_sequence(self) -> PagedSequence:
        return self._cache.add()

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> list[torch.Tensor]:
        """See `TargetModel.forward`.

        Raises:
            PoolFull: no room for the new tokens.
            PromptTooLong: a sequence would outgrow the context.
            InvalidRequest: a chunk is empty, an id is out of range, more rows than tokens,
                a sequence twice in a pass, or one that is not this model's or was released.
        """
        sequences = self._checked(chunks)
        if not chunks:
            return []
        ends = {s: s.length + len(c.token_ids) for s, c in zip(sequences, chunks, strict=True)}
        try:
            self._cache.reserve(ends, self._device)
            logits, counts = self._run(chunks, sequences)
        except BaseException as error:
            for sequence in sequences:
                self._cache.settle(sequence, sequence.length)
            if is_out_of_memory(error):
                count = sum(len(chunk.token_ids) for chunk in chunks)
                raise PoolFull(
                    f"{self._name} ran out of device memory on a pass of {count} tokens; close a "
                    "session or lower the cache size",
                    retry_after=1.0,
                ) from error
            raise
        for sequence, end in ends.items():
            self._cache.settle(sequence, end)
        return list(logits.split(counts))

    def rollback(self, sequence: TargetSequence, length: int) -> None:
        """See `TargetModel.rollback`.

        Raises:
            InvalidRequest: `length` is negative or above the present length, or the sequence
                is not this model's or was released.
        """
        self._cache.truncate(self._owned(sequence), length)

    def fork(self, sequence: TargetSequence, length: int) -> PagedSequence:
        """See `TargetModel.fork`.

        Raises:
            InvalidRequest: as for `rollback`.
        """
        return self._cache.fork(self._owned(sequence), length)

    def release(self, sequence: TargetSequence) -> None:
        if isinstance(sequence, PagedSequence):
            self._cache.remove(sequence)

    def _run(
        self, chunks: Sequence[Chunk], sequences: Sequence[PagedSequence]
    ) -> tuple[torch.Tensor, list[int]]:
        """Logits [rows of all chunks, V], and how many each chunk has."""
        batch = PackedBatch.of(zip(chunks, sequences, strict=True))
        staging = Staging(self._device)
        numbers = [staging.put(values) for values in (batch.ids, batch.positions, batch.wanted)]
        attention = self._attention.make(self._cache, batch.segments, staging)
        staging.send()
        token_ids, places, rows = (staging[number] for number in numbers)
        screening = Screening(chunks)
        if self._head is not None:
            self._head.screening = screening if self._screens else None
        # NOTE: a gather, even for the last rows: what a count cuts out keeps the batch stride
        # of the whole pass, on which bfloat16 products on a CPU take 50 times as long.
        logits: torch.Tensor = self._model(
            input_ids=token_ids[None],
            position_ids=places[None],
            use_cache=False,
            logits_to_keep=0 if len(batch.wanted) == len(batch.ids) else rows,
            **{PASS: attention},
        ).logits[0]
        layers = len(self._cache.windows)
        if attention.layers_done != layers:
            raise UnsupportedModel(
                f"{type(self._model).__name__} did its attention {attention.layers_done} times "
                f"in {layers} layers; it cannot run over a paged cache"
            )
        if self._head is not None and not self._screens:
            # Not where a model makes something else of what its output layer gives.
            self._screens = self._head.made(logits)
        return logits, screening.counts

    def _checked(self, chunks: Sequence[Chunk]) -> list[PagedSequence]:
        sequences = [self._owned(chunk.sequence) for chunk in chunks]
        check_chunks(self, chunks)
        return sequences

    def _owned(self, sequence: TargetSequence) -> PagedSequence:
        if not isinstance(sequence, PagedSequence) or sequence not in self._cache:
            raise InvalidRequest(
                f"the sequence was released, or is not one of {self._name}", field="sequence"
            )
        return sequence
