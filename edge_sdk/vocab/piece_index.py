"""From bytes to the id that stands for them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from edge_sdk.vocab.pieces import Pieces


class PieceIndex(Mapping[bytes, int]):
    """Ids by their bytes, ascending by id; read-only.

    It takes 12 bytes an id, where a dictionary takes about 130: hashes in ascending order, and
    the ids that they belong to.

    Args:
        pieces: bytes of all ids.
        ids: those that are looked up [n], ascending, all of different bytes.
    """

    __slots__ = ("_hashes", "_ids", "_pieces")

    def __init__(self, pieces: Pieces, ids: NDArray[np.integer]) -> None:
        hashes = pieces.hashes()[ids]
        order = np.argsort(hashes)
        self._pieces = pieces
        self._hashes = hashes[order].data
        self._ids = ids[order].astype(np.uint32).data

    def find(self, piece: bytes) -> int | None:
        """The id of a byte string, None if there is none. O(log n)."""
        wanted, hashes = hash(piece), self._hashes
        at = bisect_left(hashes, wanted)
        while at < len(hashes) and hashes[at] == wanted:
            token: int = self._ids[at]
            if self._pieces[token] == piece:
                return token
            at += 1
        return None

    def shared(self, other: PieceIndex) -> list[tuple[int, int]]:
        """Our id and the other's for every byte string that both have, in no order."""
        ours, theirs = np.asarray(self._hashes), np.asarray(other._hashes)
        found = np.flatnonzero(np.isin(ours, theirs))
        pairs = []
        for token in np.asarray(self._ids)[found].tolist():
            their = other.find(self._pieces[token])
            if their is not None:
                pairs.append((token, their))
        return pairs

    def __getitem__(self, piece: bytes) -> int:
        token = self.find(piece)
        if token is None:
            raise KeyError(piece)
        return token

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[bytes]:
        return (self._pieces[token] for token in np.sort(np.asarray(self._ids)).tolist())
