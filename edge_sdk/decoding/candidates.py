"""`candidates`: server candidates verified on the device, X-CoSD-E (SR-DV). Lossless.

Accept x_i with probability min(1, p(x_i) / q(x_i)). On rejection the server sends up to K
candidates z ~ p, i.i.d., with p(z); the device takes the first that passes

    alpha(z) = max(p(z) - q(z), 0) / p(z)

which has the law max(p - q, 0) / Z. On V_O q is 0, so alpha is 1 and the list ends there.
One coin for each repetition: distinct candidates only would bias the text. If none passes,
the device asks for the next block; after M blocks it falls back to head and tail
(`edge_sdk.decoding.head_tail`), which draws from p afresh and is exact too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from edge_sdk.decoding.coins import Key, Purpose
from edge_sdk.decoding.head_tail_device import HeadTailDevice
from edge_sdk.decoding.method import (
    DeviceContext,
    DeviceHalf,
    Drafted,
    Method,
    check_choice,
    is_number,
)
from edge_sdk.errors import InvalidRequest, ProtocolError
from edge_sdk.link import Link
from edge_sdk.wire import limits
from edge_sdk.wire.codec import decode
from edge_sdk.wire.packing import LAW_FORMATS, unpack_tokens

MAX_CANDIDATES = 255  # a block, so that an index is a byte
MAX_BLOCKS = 64
ADAPTIVE = "adaptive"
CANDIDATE_BITS = 56  # an id of three bytes and an f32


@dataclass(frozen=True, slots=True)
class CandidateBlock:
    """Candidates of one block.

    Attributes:
        distinct: packed ids and probabilities of those that occur.
        order: one byte a candidate, its index in `distinct`; empty if each occurs once, in
            that order.
    """

    distinct: bytes
    order: bytes = b""


class CandidatesDevice(HeadTailDevice):
    def __init__(self, context: DeviceContext, law_format: str, blocks: int) -> None:
        super().__init__(context, law_format)
        self._blocks = blocks
        self._tried = 0

    def settle(
        self, rejection: bytes, drafted: Drafted, *, position: int, block: int
    ) -> int | None:
        if block == self._blocks:
            return self.begin_head_tail(rejection, drafted, position=position)
        if block > self._blocks:
            return self.more_tail(rejection, drafted, position=position)
        try:
            message = decode(CandidateBlock, rejection, limit=limits.MAX_REPLY_BODY)
            ids, p = unpack_tokens(message.distinct, self._format, size=self.context.target_size)
        except InvalidRequest as error:
            raise ProtocolError(f"the server's candidates cannot be read: {error}") from error
        order = np.frombuffer(message.order, dtype=np.uint8) if message.order else range(len(ids))
        if not len(ids) or len(order) > MAX_CANDIDATES or max(order) >= len(ids):
            raise ProtocolError(
                f"the server's candidates are impossible: {len(ids)} ids in an order of "
                f"{len(order)}"
            )
        if bool((p <= 0).any()):
            raise ProtocolError("the server sent a candidate of probability 0")
        if block == 0:
            self._tried = 0
        alpha = np.maximum(p - self.q(ids, drafted), 0.0) / p
        for index in order:
            key = Key(position, Purpose.KEEP, self._tried)
            self._tried += 1
            if self.context.coins.bernoulli(key, float(alpha[index])):
                return int(ids[index])
        return None


@dataclass(frozen=True, slots=True)
class Candidates(Method):
    """Candidates of the server, verified on the device (lossless).

    Attributes:
        k: candidates of the first block; "adaptive" fits it to the session's history and link.
        growth: each further block is that many times as long.
        m: blocks before the fall back to head and tail.
        trip: how many candidates cross the link in the time of a round trip; guides the
            adaptive k. 0 takes what the client measured of its link.
        law_format: how probabilities travel, as in `Hybrid`.
    """

    name: ClassVar[str] = "candidates"
    lossless: ClassVar[bool] = True

    k: int | str = ADAPTIVE
    growth: float = 2.0
    m: int = 2
    trip: int = 0
    law_format: str = "f32"

    def __post_init__(self) -> None:
        check_choice("law_format", self.law_format, LAW_FORMATS)
        if self.k != ADAPTIVE:
            _require_integer("k", self.k, 1, MAX_CANDIDATES, f"{ADAPTIVE!r} or ")
        _require_integer("m", self.m, 1, MAX_BLOCKS)
        _require_integer("trip", self.trip, 0, 1 << 20, "0 (measured) or ")
        if not is_number(self.growth) or not 1 <= self.growth <= 16:
            raise InvalidRequest(
                f"growth is {self.growth!r}; it must be within [1, 16]", field="growth"
            )

    def over(self, link: Link) -> Method:
        if self.trip:
            return self
        trip = round(link.round_trip * link.bits_per_second / CANDIDATE_BITS)
        return replace(self, trip=min(max(trip, 4), 1024))

    def device_half(self, context: DeviceContext) -> DeviceHalf:
        return CandidatesDevice(context, self.law_format, self.m)


def _require_integer(name: str, value: object, least: int, most: int, also: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidRequest(
            f"{name} is {value!r}; it must be {also}an integer from {max(least, 1)} to {most}",
            field=name,
        )
