"""Server side of head and tail; the mathematics stand in `edge_sdk.decoding.head_tail`."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Coins, Key, Purpose
from edge_sdk.decoding.head_tail import HeadTail
from edge_sdk.wire import encode
from edge_sdk.wire.packing import pack_tokens
from server_app.methods.weights import Weights

MOST_HEAD: Final = 64  # ids
MOST_TAIL: Final = 64  # tokens drawn ahead
MOST_MORE: Final = 4096  # tokens of a reply that was asked for
# Sets how many tokens are drawn ahead: t**(n + 1) is about the chance that they run out where
# the head has most of what p exceeds q by. It may be far larger where p and q nearly agree on
# the head, but there a rejection is as unlikely. On the default pair a reply is 13 bytes of
# tokens at temperature 0.3 and 64 at 1, and one in 3,000 (350) rejections asks for more.
RISK: Final = 0.002
_LEAST_MORE: Final = 4
_USUAL_HEAD: Final = 16  # ids that are looked at first


def head_and_tail_sizes(head: NDArray[np.float64]) -> tuple[int, int]:
    """How many ids the head has and how many tokens are drawn from the tail ahead.

    With t the mass of the tail, the fewest n with t**(n + 1) <= RISK, and the head that needs
    the fewest tokens in all. A function of p alone: what a draw says must not decide how many
    there are.

    Args:
        head: the largest probabilities, descending [at most MOST_HEAD].
    """
    possible = max(1, int((head > 0).sum()))
    tail_mass = np.clip(1.0 - np.cumsum(head[:possible]), 1e-300, 1 - 1e-9)
    ahead = np.clip(np.ceil(np.log(RISK) / np.log(tail_mass)) - 1, 0, MOST_TAIL)
    best = int((np.arange(1, possible + 1) + ahead).argmin())
    return best + 1, int(ahead[best])


class HeadTailLaw:
    """One law p cut into head and tail, as long as the device may ask for more of it.

    Args:
        law: p of the row, times a constant; kept as long as this object.
        coins: the server's coins.
        position: generated target tokens before the one in question.
        law_format: how probabilities travel.
    """

    def __init__(self, law: Weights, coins: Coins, *, position: int, law_format: str) -> None:
        self._coins = coins
        self._position = position
        self._format = law_format
        self._size = law.size
        for most in (_USUAL_HEAD, MOST_HEAD):
            ids = law.largest(most)
            head_p = law.p(ids)
            count, self._next = head_and_tail_sizes(head_p)
            # A longer head alone would have more tokens than this one and its tail.
            if count + self._next <= most:
                break
        self._ids = ids[:count]
        self._p = head_p[:count]
        self._rest = law.without(self._ids)
        self._tail_mass = self._rest.total / law.normaliser
        self._drawn = 0

    def first(self) -> bytes:
        """Head and the first tail tokens."""
        head = pack_tokens(self._ids, self._p, self._format, size=self._size)
        message = encode(HeadTail(self._tail_mass, head, self.more()))
        self._rest = self._rest.kept()
        return message

    def more(self) -> bytes:
        """Further tail tokens, twice as many as the last time."""
        if self._tail_mass <= 0:
            return b""
        places = range(self._drawn, self._drawn + self._next)
        keys = [Key(self._position, Purpose.TAIL, place) for place in places]
        ids = list(self._coins.categoricals(keys, self._rest))
        self._drawn += self._next
        self._next = min(max(2 * self._next, _LEAST_MORE), MOST_MORE)
        chosen = np.array(ids, dtype=np.int64)
        return pack_tokens(chosen, self._rest.p(chosen), self._format, size=self._size)
