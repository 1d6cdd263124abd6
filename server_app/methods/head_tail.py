"""Server side of head and tail; the mathematics stand in `edge_sdk.decoding.head_tail`."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Coins, Key, Purpose
from edge_sdk.decoding.head_tail import HeadTail
from edge_sdk.wire import encode
from edge_sdk.wire.packing import pack_tokens

MOST_HEAD: Final = 64  # ids
HEAD_MASS: Final = 0.995  # of p that the head holds, if that many ids do
FIRST_TAIL: Final = 2  # tokens drawn ahead; doubled each time the device asks


class HeadTailLaw:
    """One law p cut into head and tail, as long as the device may ask for more of it.

    Args:
        law: p [V].
        coins: the server's coins.
        position: generated target tokens before the one in question.
        law_format: how probabilities travel.
    """

    def __init__(self, law: torch.Tensor, coins: Coins, *, position: int, law_format: str) -> None:
        self._coins = coins
        self._position = position
        self._format = law_format
        self._size = law.shape[0]
        values, ids = law.topk(min(MOST_HEAD, self._size))
        head_p = values.double().cpu().numpy()
        held = np.cumsum(head_p)
        # NOTE: how long the head is depends on p alone, never on a draw.
        count = min(int((held < HEAD_MASS).sum()) + 1, int((head_p > 0).sum()))
        self._ids: NDArray[np.int64] = ids[:count].cpu().numpy()
        self._p = head_p[:count]
        self._rest: NDArray[np.float64] = law.double().cpu().numpy().copy()
        self._rest[self._ids] = 0.0
        self._tail_mass = float(self._rest.sum())
        self._drawn = 0
        self._next = FIRST_TAIL

    def first(self) -> bytes:
        """Head and the first tail tokens."""
        head = pack_tokens(self._ids, self._p, self._format, size=self._size)
        return encode(HeadTail(self._tail_mass, head, self.more()))

    def more(self) -> bytes:
        """Further tail tokens, twice as many as the last time."""
        if self._tail_mass <= 0:
            return b""
        places = range(self._drawn, self._drawn + self._next)
        keys = [Key(self._position, Purpose.TAIL, place) for place in places]
        ids = list(self._coins.categoricals(keys, self._rest))
        self._drawn += self._next
        self._next = min(2 * self._next, MOST_HEAD)
        chosen = np.array(ids, dtype=np.int64)
        return pack_tokens(chosen, self._rest[chosen], self._format, size=self._size)
