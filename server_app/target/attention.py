"""Attention of one pass over a paged cache.

Stock Hugging Face models let a registered function do their attention and hand it the
extra keyword arguments of `forward`. Ours takes the attention of the pass from there: no
cache object, no mask over the whole packed batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from edge_sdk.errors import UnsupportedModel
from server_app.target.paged_cache import PagedCache
from server_app.target.pages import PagedSequence
from server_app.target.staging import Staging

ATTENTION = "cosd_pages"
PASS = "pass_attention"  # keyword argument of a model's forward


@dataclass(frozen=True, slots=True)
class Segment:
    """New tokens of one sequence in a packed batch.

    Attributes:
        sequence: whose pages are already there.
        row: their first row in the batch.
        rows: how many.
    """

    sequence: PagedSequence
    row: int
    rows: int

    @property
    def past(self) -> int:
        """Tokens of the sequence before them."""
        return self.sequence.length

    @property
    def end(self) -> int:
        """Tokens of the sequence after the pass."""
        return self.past + self.rows


@dataclass(frozen=True, slots=True)
class Sight:
    """What a segment sees in the layers of one window.

    Attributes:
        pages: numbers of the pages that hold it, in the order of the text.
        skipped: tokens at their beginning that no new token sees.
        past: tokens in them before the new ones.
        keys: tokens in them in all.
    """

    pages: list[int]
    skipped: int
    past: int
    keys: int


class PassAttention(ABC):
    """Attention of one pass: what its layers share.

    Subclasses say how a layer attends. They put what they need on the device into `staging`
    while they are made, and read it while the model runs.

    Args:
        segments: in the order of the packed batch.
        staging: sent before the model runs.

    Attributes:
        layers_done: layers that have attended so far.
    """

    def __init__(self, cache: PagedCache, segments: Sequence[Segment], staging: Staging) -> None:
        self.cache = cache
        self._staging = staging
        self.layers_done = 0
        self._slots = [
            staging.put(slot for segment in segments for slot in self._new_slots(segment, group))
            for group in range(len(cache.groups))
        ]

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        softcap: float | None,
    ) -> torch.Tensor:
        """Store the new keys and values of a layer and attend.

        Args:
            query: [1, query heads, tokens, head size].
            key: [1, key heads, tokens, head size], positions applied.
            value: like `key`.

        Returns:
            [1, tokens, query heads, value head size].
        """
        slots = self._staging[self._slots[self.cache.group_of[layer]]]
        keys, values = key[0].transpose(0, 1), value[0].transpose(0, 1)
        self.cache.write(layer, slots, keys, values)
        out = self._attend(layer, query[0].transpose(0, 1), keys, values, scaling, softcap)
        self.layers_done += 1
        return out[None]

    @abstractmethod
    def _attend(
        self,
        layer: int,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        scaling: float,
        softcap: float | None,
    ) -> torch.Tensor:
        """[tokens, query heads, value head size] from the same of the new tokens; their keys
        and values are in the cache as well."""

    def _sight(self, segment: Segment, group: int) -> Sight:
        """What the new tokens of a segment see."""
        window, page = self.cache.groups[group].window, self.cache.page
        table = segment.sequence.tables[group]
        seen = 0 if window is None else max(0, segment.past - window + 1)
        first, last = seen // page, -(-segment.end // page)
        return Sight(
            table.pages[first - table.first : last - table.first],
            seen - first * page,
            segment.past - first * page,
            segment.end - first * page,
        )

    def _new_slots(self, segment: Segment, group: int) -> list[int]:
        page, table = self.cache.page, segment.sequence.tables[group]
        return [
            table.pages[at // page - table.first] * page + at % page
            for at in range(segment.past, segment.end)
        ]


def attention_over_pages(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    **arguments: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function that models call; see `transformers.AttentionInterface`.

    Raises:
        UnsupportedModel: the model asks for something that this attention does not do.
    """
    current = arguments.get(PASS)
    layer = getattr(module, "layer_idx", None)
    name = type(module).__name__
    if not isinstance(current, PassAttention) or layer is None:
        raise UnsupportedModel(f"{name} does not pass its layer number and arguments on")
    if s_aux is not None or position_bias is not None:
        raise UnsupportedModel(f"{name} uses attention sinks or a position bias; not supported")
    if sliding_window != current.cache.windows[layer]:
        raise UnsupportedModel(
            f"layer {layer} ({name}) has a window of {sliding_window} tokens where the "
            f"configuration says {current.cache.windows[layer]}"
        )
    out = current.attend(
        layer,
        query,
        key,
        value,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        softcap=softcap,
    )
    return out, None


def register_attention() -> str:
    """Make the function known to transformers; returns the name for `attn_implementation`."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, attention_over_pages)
    return ATTENTION
