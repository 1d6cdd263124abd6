"""Small deterministic language models made of a table, for tests and demonstrations.

A toy draft and a toy target that share a table, or two blended ones, have a known
acceptance, run without weights and make every test of a round trip run in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edge_sdk.errors import InvalidRequest

_HASHED_ROWS = 1021  # prime, so that the mixed radix below spreads over all rows


@dataclass(frozen=True, slots=True, eq=False)
class ToyTable:
    """A Markov law of order 1 or 2: next-token logits by the last one or two ids.

    The row of a context is `sum_k key(id_k) * radix^k mod R`, where a missing id (before the
    text begins) has key 0. With R = radix^order every context has a row of its own.

    Attributes:
        rows: float64 [R, V], logits; -inf where a token cannot follow.
        order: how many of the last ids count.
        keys: int64 [V], 1-based key of each id. Tables over different vocabularies follow
            the same text if their ids have the same keys (see `projected`).
        radix: above every key.
    """

    rows: NDArray[np.float64]
    order: int
    keys: NDArray[np.int64]
    radix: int

    @property
    def size(self) -> int:
        """V."""
        return int(self.rows.shape[1])

    @classmethod
    def random(cls, seed: int, size: int, order: int = 1, *, spread: float = 2.0) -> Self:
        """A seeded random table.

        Args:
            size: V.
            order: 1 or 2.
            spread: standard deviation of the logits; 0 is the flat law, and with V = 300 the
                perplexity is about 47 at 2 and 3 at 6.

        Raises:
            InvalidRequest: order is not 1 or 2, or size is below 1.
        """
        _check(size, order)
        count = min((size + 1) ** order, max(_HASHED_ROWS, size + 1))
        rows = np.random.default_rng(seed).normal(0.0, spread, size=(count, size))
        return cls(rows, order, np.arange(1, size + 1), size + 1)

    @classmethod
    def from_laws(cls, laws: ArrayLike) -> Self:
        """The table with given probabilities.

        Args:
            laws: [V+1, V] (order 1) or [V+1, V+1, V] (order 2). The first axes are the last
                id and the one before it, plus one; 0 stands for the beginning of the text.
                A [V] law is the same after every context. Rows need not sum to 1.

        Raises:
            InvalidRequest: another shape, or a row without positive probability.
        """
        table = np.asarray(laws, dtype=np.float64)
        size = table.shape[-1] if table.ndim else 0
        if table.ndim == 1:
            table = np.broadcast_to(table, (size + 1, size))
        if size < 1 or table.shape[:-1] not in {(size + 1,), (size + 1, size + 1)}:
            raise InvalidRequest(
                f"toy laws have shape {table.shape}; use [V], [V+1, V] or [V+1, V+1, V]",
                field="laws",
            )
        order = table.ndim - 1
        if order == 2:
            table = table.transpose(1, 0, 2)  # the last id is the low digit of the row
        rows = table.reshape(-1, size)
        sums = rows.sum(axis=1, keepdims=True)
        if not (np.all(rows >= 0.0) and np.all(sums > 0.0) and np.all(np.isfinite(sums))):
            raise InvalidRequest(
                "toy laws must be finite, not negative, and positive somewhere in every row",
                field="laws",
            )
        with np.errstate(divide="ignore"):
            logits = np.log(rows / sums)
        return cls(logits, order, np.arange(1, size + 1), size + 1)

    def logits(self, ids: Sequence[int]) -> NDArray[np.float64]:
        """Logits [V] after `ids`; a view of the table that must not be written."""
        row, weight = 0, 1
        for back in range(1, min(self.order, len(ids)) + 1):
            row += int(self.keys[ids[-back]]) * weight
            weight *= self.radix
        view: NDArray[np.float64] = self.rows[row % len(self.rows)]
        return view

    def laws(self) -> NDArray[np.float64]:
        """Softmax of every row at temperature 1, [R, V]."""
        shifted = np.exp(self.rows - self.rows.max(axis=1, keepdims=True))
        return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))

    def blended(self, other: ToyTable, similarity: float) -> Self:
        """The table with law `similarity * self + (1 - similarity) * other` in every row.

        Against `self`, at temperature 1, a token drafted by it is accepted with probability
        1 - (1 - similarity) * TV(self, other): 1 at similarity 1, and linear below.

        Raises:
            InvalidRequest: similarity outside [0, 1], or tables of different shape.
        """
        if not 0.0 <= similarity <= 1.0:
            raise InvalidRequest(f"similarity {similarity} is not in [0, 1]", field="similarity")
        if self.rows.shape != other.rows.shape or not np.array_equal(self.keys, other.keys):
            raise InvalidRequest(
                f"tables of shape {self.rows.shape} and {other.rows.shape} do not blend: "
                "they must have the same rows, ids and keys",
                field="other",
            )
        with np.errstate(divide="ignore"):
            rows = np.log(similarity * self.laws() + (1.0 - similarity) * other.laws())
        return replace(self, rows=rows)

    def acceptance(self, other: ToyTable) -> float:
        """Mean over all rows of sum_v min(self, other) at temperature 1."""
        return float(np.minimum(self.laws(), other.laws()).sum(axis=1).mean())

    def biased(self, bias: Mapping[int, float]) -> Self:
        """The table with `bias[id]` added to the logits of `id` in every row; -inf takes the
        id out of every law. For instance to make end tokens rare."""
        rows = self.rows.copy()
        for token_id, amount in bias.items():
            rows[:, token_id] += amount
        return replace(self, rows=rows)

    def projected(self, source_ids: Sequence[int], *, unmatched: float = -2.0) -> Self:
        """The same law over another vocabulary.

        Args:
            source_ids: for each id of the new vocabulary the id of this one with the same
                meaning, or -1.
            unmatched: logit of ids without one; as a context they count as the beginning.
        """
        chosen = np.asarray(source_ids, dtype=np.int64)
        if chosen.ndim != 1 or not np.all((chosen >= -1) & (chosen < self.size)):
            raise InvalidRequest(
                f"source ids must be a list of ids below {self.size}, or -1", field="source_ids"
            )
        missing = chosen < 0
        rows = self.rows[:, chosen]
        rows[:, missing] = unmatched
        return replace(self, rows=rows, keys=np.where(missing, 0, self.keys[chosen]))


def _check(size: int, order: int) -> None:
    if order not in (1, 2):
        raise InvalidRequest(f"order {order} of a toy table is not 1 or 2", field="order")
    if size < 1:
        raise InvalidRequest(f"a toy table needs at least one id, not {size}", field="size")
