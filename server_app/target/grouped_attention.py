"""Attention with torch's own kernel for padded batches, on any device.

Segments of similar shape attend together, padded to the longest of them; a long one attends
by itself. The cost is the sum over segments of rows times keys, at most a constant factor
more, and never rows times the keys of other segments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.functional import scaled_dot_product_attention

from server_app.target.attention import PassAttention, Segment, Sight
from server_app.target.paged_cache import PagedCache
from server_app.target.staging import Staging

_PADDING = 1.5  # most rows times keys of a padded batch over those of its segments
_FREE_CELLS = 512  # rows times keys that cost as much as one more call of the kernel
_MOST_KEYS = 4096  # of a padded batch: they are copied, and the copy should stay in a cache
_MANY_ROWS = 64  # where a mask row for every query head would be large


def padded_batches(shapes: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Which segments attend together.

    Args:
        shapes: rows and keys of every segment.

    Returns:
        their numbers, each once; within a batch in ascending order.
    """
    batches: list[list[int]] = []
    rows = keys = area = 0
    for number in sorted(range(len(shapes)), key=lambda n: (-shapes[n][1], -shapes[n][0])):
        mine_rows, mine_keys = shapes[number]
        count = len(batches[-1]) + 1 if batches else 1
        together_rows = max(rows, mine_rows)
        padded = count * together_rows * keys
        bound = _PADDING * (area + mine_rows * mine_keys) + _FREE_CELLS * count
        if batches and count * keys <= _MOST_KEYS and padded <= bound:
            batches[-1].append(number)
            rows, area = together_rows, area + mine_rows * mine_keys
        else:
            batches.append([number])
            rows, keys, area = mine_rows, mine_keys, mine_rows * mine_keys
    for batch in batches:
        batch.sort()
    return sorted(batches)


@dataclass(slots=True)
class _Batch:
    """Segments that attend together.

    Attributes:
        count: of segments.
        rows, keys: of the longest.
        window: of the layers.
        first: their first row in the packed batch, where they are neighbours of equal length.
        pick: number in the staging of the packed row of each padded row, where they are not.
        places: number in the staging of the place of each padded row among the keys.
        pages: number in the staging of the pages of every segment.
        skipped: keys at the beginning that a lone segment does not see.
        run: first and last slot, where a lone segment's pages are neighbours.
        fresh: a lone segment without past: nothing has to be read back.
        gathered: room for the pages of keys (0) and values (1), used by one layer after another.
        mask: additive [count, 1, rows or heads a key head * rows, keys], made once a pass.
    """

    count: int
    rows: int
    keys: int
    window: int | None
    first: int | None
    pick: int
    places: int
    pages: int
    skipped: int
    run: tuple[int, int] | None
    fresh: bool
    mask: torch.Tensor | None = None
    gathered: dict[int, torch.Tensor] = field(default_factory=dict)


class GroupedAttention(PassAttention):
    """See the module."""

    def __init__(self, cache: PagedCache, segments: Sequence[Segment], staging: Staging) -> None:
        super().__init__(cache, segments, staging)
        self._batches: list[list[_Batch]] = []
        self._orders: list[int | None] = []
        for group in range(len(cache.groups)):
            sights = [self._sight(segment, group) for segment in segments]
            numbers = padded_batches(
                [(s.rows, sight.keys) for s, sight in zip(segments, sights, strict=True)]
            )
            self._batches.append(
                [
                    self._batch([segments[n] for n in batch], [sights[n] for n in batch], group)
                    for batch in numbers
                ]
            )
            self._orders.append(self._order(numbers, segments))

    def _batch(self, segments: list[Segment], sights: list[Sight], group: int) -> _Batch:
        rows = max(segment.rows for segment in segments)
        keys = max(sight.keys for sight in sights)
        width = max(len(sight.pages) for sight in sights)
        first = segments[0].row
        neighbours = all(
            segment.rows == rows and segment.row == first + number * rows
            for number, segment in enumerate(segments)
        )
        pick = places = pages = -1
        run = None
        window = self.cache.groups[group].window
        fresh = len(segments) == 1 and not segments[0].past
        skipped = 0
        if len(segments) == 1:
            skipped = sights[0].skipped
            run = _run(sights[0].pages, self.cache.page, skipped, keys)
        if run is None:
            # NOTE: a short segment is padded with its own last page, behind its last key.
            pages = self._staging.put(
                page
                for sight in sights
                for page in [*sight.pages, *sight.pages[-1:] * (width - len(sight.pages))]
            )
        if rows > 1 or len(segments) > 1:
            places = self._staging.put(
                sight.past - skipped + min(row, segment.rows - 1)
                for segment, sight in zip(segments, sights, strict=True)
                for row in range(rows)
            )
        if not neighbours:
            pick = self._staging.put(
                segment.row + min(row, segment.rows - 1)
                for segment in segments
                for row in range(rows)
            )
        return _Batch(
            len(segments),
            rows,
            keys,
            window,
            first if neighbours else None,
            pick,
            places,
            pages,
            skipped,
            run,
            fresh and (window is None or rows <= window),
        )

    def _order(self, numbers: list[list[int]], segments: Sequence[Segment]) -> int | None:
        """Number in the staging of where each packed row lies among the rows of all padded
        batches, one behind the other; None where they are in order."""
        places = [0] * sum(segment.rows for segment in segments)
        at = 0
        for batch in numbers:
            rows = max(segments[number].rows for number in batch)
            for number in batch:
                segment = segments[number]
                places[segment.row : segment.row + segment.rows] = range(at, at + segment.rows)
                at += rows
        if places == list(range(at)):
            return None
        return self._staging.put(places)

    def _attend(
        self,
        layer: int,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        scaling: float,
        softcap: float | None,
    ) -> torch.Tensor:
        group = self.cache.group_of[layer]
        batches, order = self._batches[group], self._orders[group]
        outputs = []
        for batch in batches:
            if batch.fresh and softcap is None and batch.rows > 1 and batch.first is not None:
                new = slice(batch.first, batch.first + batch.rows)
                outputs.append(_causal(query[new], keys[new], values[new], scaling))
            else:
                outputs.append(self._padded(batch, layer, query, scaling, softcap))
        out = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return out if order is None else out.index_select(0, self._staging[order])

    def _padded(
        self,
        batch: _Batch,
        layer: int,
        query: torch.Tensor,
        scaling: float,
        softcap: float | None,
    ) -> torch.Tensor:
        """[rows of the batch, query heads, value head size]."""
        count, rows = batch.count, batch.rows
        if batch.first is None:
            mine = query.index_select(0, self._staging[batch.pick])
        else:
            mine = query[batch.first : batch.first + count * rows]
        both = enumerate(self.cache.read(layer))
        keys, values = (self._held(batch, number, side) for number, side in both)
        heads, key_heads = query.shape[1], keys.shape[1]
        shared = heads // key_heads
        mine = mine.unflatten(0, (count, rows)).transpose(1, 2)
        folded = rows <= _MANY_ROWS or softcap is not None
        if folded:
            # The query heads that share a key head become rows of it: no key is repeated.
            mine = mine.reshape(count, key_heads, shared * rows, -1)
        mask = self._mask(batch, shared if folded else 1, query)
        if softcap is not None:
            out = _softcapped(mine, keys, values, mask, scaling, softcap)
        else:
            out = scaled_dot_product_attention(
                mine, keys, values, mask, scale=scaling, enable_gqa=not folded and shared > 1
            )
        return out.reshape(count, heads, rows, -1).transpose(1, 2).flatten(0, 1)

    def _held(self, batch: _Batch, number: int, side: torch.Tensor) -> torch.Tensor:
        """Keys or values [segments, heads, keys, head size] that a batch sees."""
        if batch.run is not None:
            first, last = batch.run
            return side.flatten(0, 1)[first:last].transpose(0, 1)[None]
        pages = self._staging[batch.pages]
        gathered = batch.gathered.get(number)
        if gathered is None or gathered.shape[1:] != side.shape[1:]:
            gathered = batch.gathered[number] = side.new_empty((len(pages), *side.shape[1:]))
        torch.index_select(side, 0, pages, out=gathered)
        held = gathered.view(batch.count, -1, *side.shape[2:])
        return held[:, batch.skipped : batch.keys].transpose(1, 2)

    def _mask(self, batch: _Batch, shared: int, like: torch.Tensor) -> torch.Tensor | None:
        if batch.places < 0:
            return None
        if batch.mask is None:
            row = self._staging[batch.places].view(batch.count, 1, batch.rows, 1)
            column = torch.arange(batch.keys - batch.skipped, device=like.device)
            hidden = column > row
            if batch.window is not None:
                hidden |= row - column >= batch.window
            mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
            batch.mask = mask.masked_fill_(hidden, -math.inf).repeat(1, 1, shared, 1)
        return batch.mask


def _run(pages: list[int], page: int, skipped: int, keys: int) -> tuple[int, int] | None:
    """First and last slot of keys `skipped` to `keys`, where their pages are neighbours."""
    first = pages[0]
    if pages != list(range(first, first + len(pages))):
        return None
    return first * page + skipped, first * page + keys


def _causal(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float
) -> torch.Tensor:
    """[rows, query heads, value head size] of a text from its beginning."""
    out = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        is_causal=True,
        scale=scaling,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return out[0].transpose(0, 1)


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
