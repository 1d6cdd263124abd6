"""Head and tail: settling a rejected position without the whole law. Exact.

The server sends the likeliest ids of p with their probabilities (the head, mass h), the
mass t of the others, and a few tokens drawn ~ p / t from them (the tail), each with its p.
Rejection sampling on p gives the replacement's law max(p - q, 0) / Z: draw z ~ p, keep it
with alpha(z) = max(p(z) - q(z), 0) / p(z), else draw again (q = 0 on V_O). What the head
would do in such a draw is known in advance, so draws that end in a refused head token are
skipped:

    R = sum over the head of max(p - q, 0)
    with probability R / (R + t): a head token ~ max(p - q, 0) / R, done
    else: the next tail token z, kept with alpha(z); if it is refused, begin again

Runs out of tail tokens only if several were refused; then the device asks for more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Coins, Key, Purpose
from edge_sdk.errors import InvalidRequest, ProtocolError
from edge_sdk.wire import limits
from edge_sdk.wire.codec import decode
from edge_sdk.wire.packing import unpack_tokens

_SLACK = 1e-6  # rounding of probabilities in f32; f16 has more
_SLACK_F16 = 1e-3


@dataclass(frozen=True, slots=True)
class HeadTail:
    """What the server sends.

    Attributes:
        tail_mass: t.
        head: packed ids and probabilities (`edge_sdk.wire.packing.pack_tokens`).
        tail: the same of tokens drawn from the others, in the order of the draws.
    """

    tail_mass: float
    head: bytes
    tail: bytes = b""


@dataclass(slots=True)
class HeadTailState:
    """What the device remembers of a rejected position between two replies.

    Attributes:
        ids, p: the head [n].
        tail_mass: t.
        drawn: tail tokens tried so far.
    """

    ids: NDArray[np.int64]
    p: NDArray[np.float64]
    tail_mass: float
    drawn: int = 0


def read_head_tail(
    data: bytes, law_format: str, *, size: int
) -> tuple[HeadTailState, NDArray[np.int64], NDArray[np.float64]]:
    """State of a new position, and the tail's ids and probabilities, of an untrusted reply.

    Raises:
        ProtocolError: it is impossible.
    """
    slack = _SLACK_F16 if law_format == "f16" else _SLACK
    try:
        message = decode(HeadTail, data, limit=limits.MAX_REPLY_BODY)
        ids, p = unpack_tokens(message.head, law_format, size=size)
        tail_ids, tail_p = unpack_tokens(message.tail, law_format, size=size)
    except InvalidRequest as error:
        raise ProtocolError(f"the server's head and tail cannot be read: {error}") from error
    mass = float(p.sum()) + message.tail_mass
    # numpy's own sets take longer than all the rest for so few.
    known = set(ids.tolist())
    if len(known) != len(ids) or not -slack <= mass - 1 <= slack:
        raise ProtocolError(
            f"the server's head and tail are no law: {len(ids)} ids, mass {mass:.9f}"
        )
    if (
        message.tail_mass < 0
        or not known.isdisjoint(tail_ids.tolist())
        or bool((tail_p <= 0).any())
    ):
        raise ProtocolError("the server's tail has tokens that cannot be in it")
    return HeadTailState(ids, p, message.tail_mass), tail_ids, tail_p


def settle_head_tail(
    state: HeadTailState,
    tail_ids: NDArray[np.int64],
    tail_p: NDArray[np.float64],
    q: Callable[[NDArray[np.int64]], NDArray[np.float64]],
    coins: Coins,
    *,
    position: int,
) -> int | None:
    """The replacement, or None if the tail ran out.

    Args:
        state: updated with the tail tokens tried.
        tail_ids, tail_p: tail tokens that were not tried yet, in order.
        q: draft probabilities of target ids (0 on V_O).
    """
    residual = np.maximum(state.p - q(state.ids), 0.0)
    head_mass = float(residual.sum())
    if head_mass + state.tail_mass <= 0:
        # p equals q up to rounding: p itself is the law.
        residual, head_mass = state.p, float(state.p.sum())
    tail_q = q(tail_ids)
    for token, p, its_q in zip(tail_ids.tolist(), tail_p.tolist(), tail_q.tolist(), strict=True):
        if _from_head(state, head_mass, coins, position):
            return _head_token(state, residual, coins, position)
        state.drawn += 1
        key = Key(position, Purpose.TAIL_KEEP, state.drawn)
        if coins.bernoulli(key, max(p - its_q, 0.0) / p):
            return int(token)
    if _from_head(state, head_mass, coins, position):
        return _head_token(state, residual, coins, position)
    return None


def _from_head(state: HeadTailState, head_mass: float, coins: Coins, position: int) -> bool:
    key = Key(position, Purpose.HEAD, state.drawn)
    return coins.bernoulli(key, head_mass / (head_mass + state.tail_mass))


def _head_token(
    state: HeadTailState, residual: NDArray[np.float64], coins: Coins, position: int
) -> int:
    return int(state.ids[coins.categorical(Key(position, Purpose.RESIDUAL), residual)])
