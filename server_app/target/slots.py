"""Where keys and values lie: a flat pool of slots, one slot a token.

Every sequence owns one run of neighbouring slots, so that reading its keys and values
is a view of the pool and a rollback only shortens the run. Runs grow in place where
they can, move where they must, and are pushed together when the pool is fragmented.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from edge_sdk.errors import InvalidRequest
from server_app.target.model import PoolFull, TargetSequence

_FIRST_SLOTS = 1024
_SPARE_SLOTS = 64


class SlotSequence(TargetSequence):
    """Cache of one text: a run of slots of one pool.

    Attributes:
        start: first slot of the run.
        capacity: slots of the run.
    """

    __slots__ = ("_length", "capacity", "start")

    def __init__(self) -> None:
        self._length = 0
        self.start = 0
        self.capacity = 0

    @property
    def length(self) -> int:
        return self._length

    @length.setter
    def length(self, length: int) -> None:
        self._length = length


@dataclass(slots=True)
class _Store:
    """Keys [slots, heads, head size] and values of one layer."""

    keys: torch.Tensor
    values: torch.Tensor


class SlotPool:
    """Keys and values of many sequences, on one device.

    A layer's tensors are made when it is first written, in the shape that the model
    gives it, so that no shape is guessed from a configuration.

    Args:
        layers: attention layers of the model.
        limit: most slots the pool may grow to.

    Attributes:
        limit: may be changed at any time; a pool above it does not shrink.
    """

    def __init__(self, layers: int, *, limit: int) -> None:
        self.limit = limit
        self._stores: list[_Store | None] = [None] * layers
        self._slots = min(_FIRST_SLOTS, limit)
        self._sequences: dict[SlotSequence, None] = {}

    @property
    def layers(self) -> int:
        return len(self._stores)

    @property
    def slots(self) -> int:
        """Slots for which memory is held."""
        return self._slots

    @property
    def used(self) -> int:
        """Tokens held by all sequences."""
        return sum(sequence.length for sequence in self._sequences)

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of one token over all layers written so far."""
        return sum(
            side[0].numel() * side.element_size()
            for store in self._stores
            if store is not None
            for side in (store.keys, store.values)
        )

    def add(self) -> SlotSequence:
        """A new, empty sequence."""
        sequence = SlotSequence()
        self._sequences[sequence] = None
        return sequence

    def remove(self, sequence: SlotSequence) -> None:
        """Give the slots of a sequence back. Idempotent."""
        self._sequences.pop(sequence, None)
        sequence.length = sequence.capacity = 0

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._sequences

    def truncate(self, sequence: SlotSequence, length: int) -> None:
        """Keep the first `length` tokens.

        Raises:
            InvalidRequest: `length` is negative or above the present length.
        """
        if not 0 <= length <= sequence.length:
            raise InvalidRequest(
                f"cannot keep {length} tokens of a sequence of {sequence.length}", field="length"
            )
        sequence.length = length

    def fork(self, sequence: SlotSequence, length: int) -> SlotSequence:
        """A copy of the first `length` tokens; an empty sequence where there is no room.

        Raises:
            InvalidRequest: `length` is negative or above the present length.
        """
        if not 0 <= length <= sequence.length:
            raise InvalidRequest(
                f"cannot keep {length} tokens of a sequence of {sequence.length}", field="length"
            )
        other = self.add()
        try:
            self.reserve({other: length})
        except PoolFull:
            return other
        for side in self._sides():
            side[other.start : other.start + length] = side[
                sequence.start : sequence.start + length
            ]
        other.length = length
        return other

    def reserve(self, needs: Mapping[SlotSequence, int]) -> None:
        """Make room so that every sequence can hold so many tokens in all.

        Raises:
            PoolFull: the limit does not allow it; nothing was changed.
        """
        growing = {sequence: need for sequence, need in needs.items() if need > sequence.capacity}
        if not growing:
            return
        total = sum(needs.get(sequence, sequence.length) for sequence in self._sequences)
        if total > self.limit:
            raise PoolFull(
                f"the cache holds {self.used} tokens of at most {self.limit} and the pass needs "
                f"{total - self.used} more; close a session or raise the cache size",
                retry_after=1.0,
            )
        for sequence, need in growing.items():
            if not self._grow(sequence, need):
                self._compact(needs)
                return

    def write(self, layer: int, first: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put keys and values [n, heads, head size] into the slots from `first` on."""
        store = self._stores[layer]
        if store is None:
            store = self._stores[layer] = _Store(
                _longer(keys, self._slots, 0), _longer(values, self._slots, 0)
            )
        last = first + keys.shape[0]
        store.keys[first:last] = keys
        store.values[first:last] = values

    def read(self, layer: int, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views [last - first, heads, head size] of the keys and values of a layer."""
        store = self._stores[layer]
        assert store is not None, "a layer is read only after it was written"
        return store.keys[first:last], store.values[first:last]

    def _grow(self, sequence: SlotSequence, need: int) -> bool:
        """Extend the run in place, else move it, else enlarge the pool."""
        wish = need + max(need // 2, _SPARE_SLOTS)
        while not self._settle(sequence, wish):
            if self._slots >= self.limit:
                return self._settle(sequence, need)
            self._resize(min(self.limit, max(2 * self._slots, self._slots + wish)))
        return True

    def _settle(self, sequence: SlotSequence, size: int) -> bool:
        start = self._place(sequence, size)
        if start is None:
            return False
        self._move(sequence, start)
        sequence.capacity = size
        return True

    def _place(self, sequence: SlotSequence, size: int) -> int | None:
        """Start of a gap of `size` slots, the sequence's own run counting as free; its own
        place if it can stay there."""
        others = sorted(
            (other.start, other.start + other.capacity)
            for other in self._sequences
            if other is not sequence and other.capacity
        )
        gaps: list[int] = []
        at = 0
        for start, end in [*others, (self._slots, self._slots)]:
            if sequence.capacity and at <= sequence.start and sequence.start + size <= start:
                return sequence.start
            if start - at >= size:
                gaps.append(at)
            at = max(at, end)
        return gaps[0] if gaps else None

    def _move(self, sequence: SlotSequence, start: int) -> None:
        old, length = sequence.start, sequence.length
        sequence.start = start
        if start == old or not length:
            return
        for side in self._sides():
            # NOTE: a clone, because the old and the new run may overlap.
            side[start : start + length] = side[old : old + length].clone()

    def _resize(self, slots: int) -> None:
        held = max((s.start + s.length for s in self._sequences), default=0)
        for store in self._stores:  # layer by layer: never twice the whole pool in memory
            if store is not None:
                store.keys = _longer(store.keys, slots, held)
                store.values = _longer(store.values, slots, held)
        self._slots = slots

    def _compact(self, needs: Mapping[SlotSequence, int]) -> None:
        """Push all runs together, in their order, and share the spare slots evenly. Called
        when the pool has its full size and the needs fit it."""
        needed = {s: needs.get(s, s.length) for s in self._sequences}
        total = sum(needed.values())
        runs = sorted((s for s in needed if needed[s]), key=lambda s: (s.start, s.capacity))
        at = 0
        for sequence in runs:
            self._move(sequence, at)
            at += sequence.length
        spare = (self._slots - total) // max(len(runs), 1)
        end = total + spare * len(runs)
        for sequence in reversed(runs):  # from the back: no run lands on one not yet moved
            end -= needed[sequence] + spare
            self._move(sequence, end)
            sequence.capacity = needed[sequence] + spare
        for sequence in needed:
            if not needed[sequence]:
                sequence.capacity = 0

    def _sides(self) -> list[torch.Tensor]:
        return [
            side
            for store in self._stores
            if store is not None
            for side in (store.keys, store.values)
        ]


def _longer(side: torch.Tensor, slots: int, held: int) -> torch.Tensor:
    """A tensor of so many slots that begins with the first `held` of `side`."""
    longer = side.new_empty((slots, *side.shape[1:]))
    longer[:held] = side[:held]
    return longer
