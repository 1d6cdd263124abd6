"""Bytes of every id of a vocabulary, in one block of memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Self, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray


class Pieces(Sequence[bytes]):
    """Byte strings by id, read-only. Equal to any sequence of the same byte strings.

    An object for each of them would take about 50 bytes more a piece than the piece itself.

    Args:
        block: all pieces, one after the other.
        lengths: integers [V], bytes of each; their sum is the length of `block`.
    """

    __slots__ = ("_starts", "block")

    def __init__(self, block: bytes, lengths: NDArray[np.integer]) -> None:
        starts = np.zeros(len(lengths) + 1, np.min_scalar_type(len(block)))
        np.cumsum(lengths, out=starts[1:])
        self.block = block
        # Its numbers are Python's own, and come several times faster than those of an array.
        self._starts = starts.data.toreadonly()

    @classmethod
    def of(cls, pieces: Iterable[bytes]) -> Self:
        """Pack byte strings; those that are packed already are returned."""
        if isinstance(pieces, cls):
            return pieces
        held = list(pieces)
        return cls(b"".join(held), np.fromiter(map(len, held), np.int64, len(held)))

    @property
    def lengths(self) -> NDArray[np.integer]:
        """Bytes of each piece [V]."""
        return np.diff(np.asarray(self._starts))

    def hashes(self) -> NDArray[np.int64]:
        """Python's hash of each piece [V]; another process has others."""
        return np.fromiter(map(hash, self), np.int64, len(self))

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, token: SupportsIndex) -> bytes: ...

    @overload
    def __getitem__(self, token: slice) -> Pieces: ...

    def __getitem__(self, token: SupportsIndex | slice) -> bytes | Pieces:
        starts = self._starts
        if isinstance(token, slice):
            return Pieces.of(self[index] for index in range(*token.indices(len(self))))
        index = token.__index__()
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"id {token} does not exist, there are {len(self)}")
        return self.block[starts[index] : starts[index + 1]]

    def __iter__(self) -> Iterator[bytes]:
        block, start = self.block, 0
        for end in self._starts[1:]:
            yield block[start:end]
            start = end

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Pieces):
            return self.block == other.block and self._starts == other._starts
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"<{len(self)} pieces, {len(self.block)} bytes>"
