"""Server half of `candidates` (X-CoSD-E); the mathematics stand in
`edge_sdk.decoding.candidates`."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.candidates import MAX_CANDIDATES, CandidateBlock, Candidates
from edge_sdk.decoding.coins import Coins, Key, Purpose
from edge_sdk.wire import encode
from edge_sdk.wire.packing import pack_tokens
from server_app.methods.base import Pair, Proposal, Settlement
from server_app.methods.head_tail import HeadTailLaw
from server_app.methods.rows import Rows
from server_app.methods.speculative import SpeculativeServer
from server_app.methods.weights import Weights

_TRIP: Final = 32  # of a client that does not say
_START: Final = 8.0
_LEAST: Final = 3.0
_MOST: Final = 64.0
_STEP: Final = 0.25


class CandidateCount:
    """How many candidates a first block gets, from the session's history.

    One candidate more is worth it while the chance that it spares a trip, times what a trip
    costs, is above its own bytes. With a candidate passing about two times in five that
    balance is kept by adding `trip` * 2/5 steps whenever the device had to ask again, and
    taking one step off whenever it had not. The current draw has no say.
    """

    def __init__(self, fixed: int | None, trip: int) -> None:
        self._fixed = fixed
        self._up = min(_STEP * trip * 0.4, _MOST / 4)
        self._k = _START

    @property
    def now(self) -> int:
        return self._fixed or round(self._k)

    def sufficed(self, enough: bool) -> None:
        """Note whether the first block of the last rejection was enough."""
        change = -_STEP if enough else self._up
        self._k = min(_MOST, max(_LEAST, self._k + change))


class CandidatesServer(SpeculativeServer):
    def __init__(self, method: Candidates, coins: Coins) -> None:
        super().__init__(coins)
        self._method = method
        self._count = CandidateCount(
            method.k if isinstance(method.k, int) else None, method.trip or _TRIP
        )
        self._law: Weights | None = None
        self._common: NDArray[np.int64] | None = None
        self._fallback: HeadTailLaw | None = None
        self._position = 0
        self._drawn = 0
        self._size = 0
        self._asked: bool | None = None

    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        if self._asked is not None:
            self._count.sufficed(not self._asked)
        self._asked = False
        self._fallback = None
        self._law = rows.weights(index)
        self._common = pair.target_ids
        self._position, self._drawn, self._size = position, 0, self._count.now
        block = self._block(self._size)
        self._law = self._law.kept()
        return Settlement(rejection=block)

    def more(self, block: int) -> bytes:
        if self._law is None:
            return super().more(block)
        self._asked = True
        if block < self._method.m:
            size = round(self._size * self._method.growth**block)
            return self._block(min(size, MAX_CANDIDATES))
        if self._fallback is None:
            self._fallback = HeadTailLaw(
                self._law,
                self._coins,
                position=self._position,
                law_format=self._method.law_format,
            )
            return self._fallback.first()
        return self._fallback.more()

    def forget(self) -> None:
        self._law = self._fallback = None

    def _block(self, size: int) -> bytes:
        law = self._law
        assert law is not None
        assert self._common is not None
        drawn: list[int] = []
        places = range(self._drawn, self._drawn + size)
        keys = [Key(self._position, Purpose.CANDIDATE, place) for place in places]
        for token in self._coins.categoricals(keys, law):
            drawn.append(token)
            place = int(np.searchsorted(self._common, token))
            if place == len(self._common) or self._common[place] != token:
                break
        self._drawn += len(drawn)
        distinct = list(dict.fromkeys(drawn))
        order_of = {token: index for index, token in enumerate(distinct)}
        order = bytes(order_of[token] for token in drawn) if len(distinct) < len(drawn) else b""
        ids = np.array(distinct, dtype=np.int64)
        packed = pack_tokens(ids, law.p(ids), self._method.law_format, size=law.size)
        return encode(CandidateBlock(packed, order))
