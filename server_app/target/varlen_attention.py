"""Attention of ragged batches with torch's kernel for GPUs (`torch.nn.attention.varlen`).

One call a layer for all segments. Where the kernel reads page tables (FlashAttention 3, if it
is installed and activated) it is given the cache itself; elsewhere what the segments see is
first gathered into one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from edge_sdk.errors import UnsupportedModel
from server_app.target.attention import PassAttention, Segment
from server_app.target.paged_cache import PagedCache
from server_app.target.staging import Staging

# The signature of `torch.nn.attention.varlen.varlen_attn`.
Kernel = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Group:
    """What the layers of one window share; numbers of lists in the staging.

    Attributes:
        table: pages of every segment [segments, width], padded with page 0.
        width: pages of the segment that sees the most.
        keys: tokens in them, by segment.
        starts: of every segment among the gathered keys, and their end.
        skipped: tokens in the first page that are left out of the gathered keys.
        most: largest of `keys`.
        total: gathered keys.
    """

    table: int
    width: int
    keys: int
    starts: int
    skipped: int
    most: int
    total: int


class VarlenAttention(PassAttention):
    """See the module.

    Args:
        kernel: by default torch's own.
        paged: give it the page tables.

    Raises:
        UnsupportedModel: this torch has no such kernel.
    """

    def __init__(
        self,
        cache: PagedCache,
        segments: Sequence[Segment],
        staging: Staging,
        *,
        paged: bool,
        kernel: Kernel | None = None,
    ) -> None:
        super().__init__(cache, segments, staging)
        self._kernel = varlen_kernel() if kernel is None else kernel
        self._paged = paged
        self._starts = staging.put(accumulate((s.rows for s in segments), initial=0))
        self._most_rows = max(segment.rows for segment in segments)
        self._groups = [self._group(segments, number) for number in range(len(cache.groups))]
        self._made: dict[int, dict[str, Any]] = {}
        self._gathered: dict[int, torch.Tensor] = {}

    def _group(self, segments: Sequence[Segment], number: int) -> _Group:
        sights = [self._sight(segment, number) for segment in segments]
        width = max(len(sight.pages) for sight in sights)
        seen = [sight.keys - sight.skipped for sight in sights]
        put = self._staging.put
        return _Group(
            put(
                page
                for sight in sights
                for page in [*sight.pages, *[0] * (width - len(sight.pages))]
            ),
            width,
            put(sight.keys for sight in sights),
            put(accumulate(seen, initial=0)),
            put(sight.skipped for sight in sights),
            max(sight.keys for sight in sights),
            sum(seen),
        )

    def _attend(
        self,
        layer: int,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        scaling: float,
        softcap: float | None,
    ) -> torch.Tensor:
        if softcap is not None:
            raise UnsupportedModel("the kernel for ragged batches has no cap on scores")
        number = self.cache.group_of[layer]
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = self._arguments(number)
        sides = self.cache.read(layer)
        if not self._paged:
            slots = self._gathered[number]
            sides = sides[0].flatten(0, 1)[slots], sides[1].flatten(0, 1)[slots]
        out: torch.Tensor = self._kernel(
            query, *sides, scale=scaling, enable_gqa=query.shape[1] != keys.shape[1], **made
        )
        return out

    def _arguments(self, number: int) -> dict[str, Any]:
        """Keyword arguments of the kernel that all layers of a group share."""
        group, staging = self._groups[number], self._staging
        window = self.cache.groups[number].window
        arguments = {
            "cu_seq_q": staging[self._starts].int(),
            "max_q": self._most_rows,
            "max_k": group.most,
            # The kernel counts the tokens to the left, without the row itself.
            "window_size": (-1 if window is None else window - 1, 0),
        }
        if self._paged:
            table = staging[group.table].view(-1, group.width).int()
            used = staging[group.keys].int()
            return arguments | {"cu_seq_k": None, "seqused_k": used, "block_table": table}
        starts = staging[group.starts]
        self._gathered[number] = self._slots_seen(group)
        return arguments | {"cu_seq_k": starts.int()}

    def _slots_seen(self, group: _Group) -> torch.Tensor:
        """Slots of all keys that the segments see, one segment behind the other [total]."""
        staging, page = self._staging, self.cache.page
        starts = staging[group.starts]
        # NOTE: with its size given, nothing here waits for the device.
        segment = torch.repeat_interleave(starts.diff(), output_size=group.total)
        at = torch.arange(group.total, device=staging.device) - starts[segment]
        at += staging[group.skipped][segment]
        pages = staging[group.table].view(-1, group.width)[segment, at // page]
        return pages * page + at % page


def varlen_kernel() -> Kernel:
    """Torch's kernel for ragged batches.

    Raises:
        UnsupportedModel: this torch has none.
    """
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError as error:
        raise UnsupportedModel(f"torch {torch.__version__} has no varlen_attn") from error
    return varlen_attn
