"""The server half of a decoding method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Coins, Key, Purpose
from edge_sdk.errors import BaseMismatch, InvalidRequest
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
        laws: q_i on that grid [gamma] of [|V_C|], where the method sends whole laws.
    """

    tokens: Sequence[int]
    numerators: Sequence[int] | None = None
    laws: Sequence[NDArray[np.int64]] | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a position after the accepted prefix is settled: the server's token, or what the
    device needs to settle it."""

    token: int | None = None
    rejection: bytes | None = None


class ServerHalf(ABC):
    """The server's part of one generation."""

    carries_q: bool = False
    carries_laws: bool = False
    allows_kept: bool = False

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

    def refused_up_to(self, proposal: Proposal, *, position: int) -> Sequence[float] | None:
        """Probabilities [gamma] of the tokens, on their rows, up to which `accepts` is sure to
        refuse them; None where that is not known before the rows are.

        Args:
            position: of the first token.
        """
        return None

    @abstractmethod
    def reject(
        self, rows: Rows, index: int, proposal: Proposal, pair: Pair, *, position: int
    ) -> Settlement:
        """Settle the position of the first refused token."""

    @abstractmethod
    def settle(self, rows: Rows, index: int, *, position: int) -> int:
        """Target id at a position with no draft: the bonus, or the token of an empty block."""

    def more(self, block: int) -> bytes:
        """What the device asks for to settle the last rejected position, blocks 1, 2, ....

        Raises:
            BaseMismatch: nothing can be asked for.
        """
        raise BaseMismatch("there is nothing to ask for: no rejected position waits for more")

    def forget(self) -> None:
        """The device settled the last rejected position; drop what was kept for it."""
        return

    @property
    def state(self) -> float | None:
        """What a session needs to be taken up again elsewhere, if anything."""
        return None

    def resume(self, state: float) -> None:
        """Take up the state of a lost session."""
        return

    def take_nll(self) -> float | None:
        """Summed -ln p of the tokens committed since last asked, where the method knows it."""
        return None


def draw(rows: Rows, index: int, coins: Coins, *, position: int) -> int:
    """Target id ~ p_index."""
    key = Key(position, Purpose.SETTLE)
    return coins.categorical(key, rows.weights(index))
