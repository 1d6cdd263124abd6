"""Keys and values of one text in buffers that are reused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from onnxruntime import IOBinding

from edge_sdk.draft.onnx_graph import CacheSlot, DecoderGraph

_FIRST_ROWS = 256
_FIRST_SHARED_ROWS = 1024


class KeyValueCache(Protocol):
    """Keys and values of one text, bound to the passes of a graph."""

    length: int  # rows that count

    def keep(self, length: int) -> None:
        """Drop rows from the end; no more than `length` stay."""
        ...

    def bind(self, binding: IOBinding, new: int) -> None:
        """Bind past and present of a pass over `new` tokens. One binding a cache."""
        ...

    def advance(self, new: int) -> None:
        """The pass is done: its rows count."""
        ...

    def free(self) -> None:
        """Give the memory back."""
        ...


def cache_for(graph: DecoderGraph, *, context: int) -> KeyValueCache:
    """The kind of cache that a graph works with, for at most `context` tokens."""
    if graph.lengths is not None:
        return SharedCache(graph.cache, context=context)
    return SwappedCache(graph.cache)


class SharedCache:
    """One buffer a slot, which the graph reads and adds its rows to.

    Nothing is copied between passes and dropping rows is bookkeeping. The buffers double
    when they are full, up to the context; their memory is only taken up to the rows in use.
    """

    def __init__(self, slots: Sequence[CacheSlot], *, context: int) -> None:
        self._slots = slots
        self._context = context
        self._capacity = 0
        self._buffers: list[NDArray[Any]] = []
        self._bound = 0
        self.length = 0

    def keep(self, length: int) -> None:
        self.length = min(self.length, length)

    def bind(self, binding: IOBinding, new: int) -> None:
        self._reserve(self.length + new)
        if self._bound == self._capacity:
            return
        for slot, buffer in zip(self._slots, self._buffers, strict=True):
            shape, address = slot.shape(self._capacity), buffer.ctypes.data
            binding.bind_input(slot.past, "cpu", 0, slot.dtype, shape, address)
            binding.bind_output(slot.present, "cpu", 0, slot.dtype, shape, address)
        self._bound = self._capacity

    def advance(self, new: int) -> None:
        self.length += new

    def free(self) -> None:
        self._buffers = []
        self._capacity = self._bound = self.length = 0

    def _reserve(self, rows: int) -> None:
        if rows <= self._capacity:
            return
        before = self._capacity
        self._capacity = max(min(max(_FIRST_SHARED_ROWS, 2 * before), self._context), rows)
        self._bound = 0
        for index, slot in enumerate(self._slots):
            size = slot.outer * self._capacity * slot.inner
            buffer = np.empty(size, slot.dtype)
            if before:
                kept = buffer.reshape(slot.outer, self._capacity, slot.inner)
                held = self._buffers[index].reshape(slot.outer, before, slot.inner)
                kept[:, : self.length] = held[:, : self.length]
                self._buffers[index] = buffer
            else:
                self._buffers.append(buffer)


class SwappedCache:
    """Two buffers a slot: a pass reads one and writes the other, then they change places.

    The graph itself copies past into present, so that nothing is copied between passes.
    Dropping rows is bookkeeping, and costs a copy of what stays at the next pass: rows of
    different heads are not adjacent. A slot with a single head needs none.
    """

    def __init__(self, slots: Sequence[CacheSlot]) -> None:
        self._slots = slots
        self._capacity = 0
        self._front: list[NDArray[Any]] = []
        self._back: list[NDArray[Any]] = []
        self._laid = 0
        self.length = 0  # rows that count; at most the rows laid out

    def keep(self, length: int) -> None:
        self.length = min(self.length, length)

    def bind(self, binding: IOBinding, new: int) -> None:
        self._reserve(self.length + new)
        self._close_ranks()
        after = self.length + new
        for slot, front, back in zip(self._slots, self._front, self._back, strict=True):
            binding.bind_input(
                slot.past, "cpu", 0, slot.dtype, slot.shape(self.length), front.ctypes.data
            )
            binding.bind_output(
                slot.present, "cpu", 0, slot.dtype, slot.shape(after), back.ctypes.data
            )

    def advance(self, new: int) -> None:
        self._front, self._back = self._back, self._front
        self._laid = self.length = self.length + new

    def free(self) -> None:
        self._front, self._back = [], []
        self._capacity = self._laid = self.length = 0

    def _reserve(self, rows: int) -> None:
        if rows <= self._capacity:
            return
        self._capacity = max(_FIRST_ROWS, 2 * self._capacity, rows)
        held = self._front
        # Memory is only touched, and so only taken, up to the rows in use.
        self._front = self._allocate()
        if held and self.length:
            for slot, old, new in zip(self._slots, held, self._front, strict=True):
                _copy(slot, old, self._laid, new, self.length)
        self._laid = self.length
        del held
        self._back = self._allocate()

    def _allocate(self) -> list[NDArray[Any]]:
        return [
            np.empty(slot.outer * self._capacity * slot.inner, slot.dtype) for slot in self._slots
        ]

    def _close_ranks(self) -> None:
        """Lay the rows that count next to one another."""
        if self._laid == self.length:
            return
        if self.length:
            for index, slot in enumerate(self._slots):
                if slot.outer == 1:
                    continue
                front, back = self._front[index], self._back[index]
                _copy(slot, front, self._laid, back, self.length)
                self._front[index], self._back[index] = back, front
        self._laid = self.length


def _copy(
    slot: CacheSlot, source: NDArray[Any], laid: int, target: NDArray[Any], rows: int
) -> None:
    width = slot.outer * slot.inner
    laid_out = source[: width * laid].reshape(slot.outer, laid, slot.inner)
    target[: width * rows].reshape(slot.outer, rows, slot.inner)[...] = laid_out[:, :rows]
