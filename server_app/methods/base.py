"""The server half of a decoding method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Coins, Key, Purpose
from edge_sdk.errors import InvalidRequest
from edge_sdk.wire.packing import unpack_draft
from server_app.methods.rows import Rows


@dataclass(frozen=True, slots=True)
class Pair:
    """V_C of one draft with the target.

    Attributes:
        pair_id: SHA-256 (hex) over target fingerprint and bitmap.
        target_ids: target id by rank, ascending [|V_C|].
    """

    pair_id: str
    target_ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A block as the server reads it.

    Attributes:
        tokens: target ids [gamma].
        numerators: q(x_i) on the grid of 2**-24 [gamma], None where the method sends no q.
    """

    tokens: Sequence[int]
    numerators: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a position after the accepted prefix is settled: the server's token, or what the
    device needs to settle it."""

    token: int | None = None
    rejection: bytes | None = None


class ServerHalf(ABC):
    """The server's part of one generation."""

    carries_q: bool = False

    def read(self, draft: bytes, pair: Pair | None) -> Proposal:
        """Unpack an untrusted block.

        Raises:
            InvalidRequest: it does not fit the pair.
        """
        if not draft:
            return Proposal(tokens=())
        if pair is None:
            raise InvalidRequest(
                "the block has drafted tokens, but the session was opened without a vocabulary "
                "pair; open it with one",
                field="draft",
            )
        size = len(pair.target_ids)
        ranks, numerators = unpack_draft(draft, size=size, with_q=self.carries_q)
        return Proposal(
            tokens=pair.target_ids[ranks].tolist(),
            numerators=None if numerators is None else numerators.tolist(),
        )

    @abstractmethod
    def accepts(self, rows: Rows, index: int, proposal: Proposal, *, position: int) -> bool:
        """Whether x_index is kept; asked in order, up to the first refusal."""

    @abstractmethod
    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        """Settle the position of the first refused token."""

    @abstractmethod
    def settle(self, rows: Rows, index: int, *, position: int) -> int:
        """Target id at a position with no draft: the bonus, or the token of an empty block."""


def draw(rows: Rows, index: int, coins: Coins, *, position: int) -> int:
    """Target id ~ p_index."""
    key = Key(position, Purpose.SETTLE)
    return coins.categorical(key, rows.law_array(index).astype(np.float64))
