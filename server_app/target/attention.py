"""Attention of one pass over the slot pool.

Stock Hugging Face models let a registered function do their attention and hand it the
extra keyword arguments of `forward`. Ours takes the plan of the pass from there, stores
the new keys and values in the pool and attends sequence by sequence over views of it:
no cache object, no mask over the whole packed batch, no copy of what is held.
A block table or a kernel for ragged batches would replace this module and `slots`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from edge_sdk.errors import UnsupportedModel
from server_app.target.slots import SlotPool

ATTENTION = "cosd_slots"
PLAN = "slot_plan"  # keyword argument of a model's forward


@dataclass(frozen=True, slots=True)
class Segment:
    """New tokens of one sequence in a packed batch.

    Attributes:
        row: their first row in the batch.
        rows: how many.
        start: first slot of the sequence.
        past: tokens of the sequence before them.
    """

    row: int
    rows: int
    start: int
    past: int

    @property
    def end(self) -> int:
        """Tokens of the sequence after the pass."""
        return self.past + self.rows


class PassPlan:
    """What the layers of one forward pass share.

    Args:
        segments: in the order of the packed batch.
        windows: per layer its sliding window in tokens, None where it sees everything.

    Attributes:
        layers_done: layers that have attended so far.
    """

    def __init__(
        self, pool: SlotPool, segments: Sequence[Segment], windows: Sequence[int | None]
    ) -> None:
        self._pool = pool
        self._segments = segments
        self.windows = windows
        self._masks: dict[tuple[int, int | None, int], torch.Tensor] = {}
        self.layers_done = 0

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
        window = self.windows[layer]
        keys, values = key[0].transpose(0, 1), value[0].transpose(0, 1)
        outputs = []
        for index, segment in enumerate(self._segments):
            new = slice(segment.row, segment.row + segment.rows)
            self._pool.write(layer, segment.start + segment.past, keys[new], values[new])
            seen = 0 if window is None else max(0, segment.past - window + 1)
            held_keys, held_values = self._pool.read(
                layer, segment.start + seen, segment.start + segment.end
            )
            outputs.append(
                self._segment(
                    index,
                    window,
                    query[:, :, new],
                    held_keys.transpose(0, 1)[None],
                    held_values.transpose(0, 1)[None],
                    scaling,
                    softcap,
                )
            )
        self.layers_done += 1
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)

    def _segment(
        self,
        index: int,
        window: int | None,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        scaling: float,
        softcap: float | None,
    ) -> torch.Tensor:
        segment = self._segments[index]
        rows, heads, key_heads = segment.rows, query.shape[1], keys.shape[1]
        fits = window is None or rows <= window
        if softcap is None and segment.past == 0 and rows > 1 and fits:
            out = scaled_dot_product_attention(
                query, keys, values, is_causal=True, scale=scaling, enable_gqa=heads != key_heads
            )
            return out.transpose(1, 2)
        # The query heads that share a key head become rows of it: nothing held is repeated.
        groups = heads // key_heads
        folded = query.reshape(1, key_heads, groups * rows, query.shape[3])
        mask = None if rows == 1 else self._mask(index, window, groups, query)
        if softcap is None:
            out = scaled_dot_product_attention(folded, keys, values, mask, scale=scaling)
        else:
            out = _softcapped(folded, keys, values, mask, scaling, softcap)
        return out.reshape(1, heads, rows, values.shape[3]).transpose(1, 2)

    def _mask(
        self, index: int, window: int | None, groups: int, like: torch.Tensor
    ) -> torch.Tensor:
        """Additive mask [groups * rows, keys in sight], made once a pass."""
        made = self._masks.get((index, window, groups))
        if made is None:
            segment = self._segments[index]
            seen = 0 if window is None else max(0, segment.past - window + 1)
            row = torch.arange(segment.past, segment.end, device=like.device)[:, None]
            column = torch.arange(seen, segment.end, device=like.device)[None]
            hidden = column > row
            if window is not None:
                hidden |= row - column >= window
            mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
            made = mask.masked_fill_(hidden, -math.inf).repeat(groups, 1)
            self._masks[(index, window, groups)] = made
        return made


def _softcapped(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float,
    softcap: float,
) -> torch.Tensor:
    """softmax(c tanh(q k / c) + mask) v (Gemma 2); no fused kernel has the cap."""
    scores = torch.tanh(query @ keys.transpose(2, 3) * (scaling / softcap)) * softcap
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype) @ values


def attention_over_slots(
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
    plan = arguments.get(PLAN)
    layer = getattr(module, "layer_idx", None)
    name = type(module).__name__
    if not isinstance(plan, PassPlan) or layer is None:
        raise UnsupportedModel(f"{name} does not pass its layer number and arguments on")
    if s_aux is not None or position_bias is not None:
        raise UnsupportedModel(f"{name} uses attention sinks or a position bias; not supported")
    if sliding_window != plan.windows[layer]:
        raise UnsupportedModel(
            f"layer {layer} ({name}) has a window of {sliding_window} tokens where the "
            f"configuration says {plan.windows[layer]}"
        )
    out = plan.attend(
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

    AttentionInterface.register(ATTENTION, attention_over_slots)
    return ATTENTION
