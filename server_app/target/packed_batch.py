"""The chunks of a pass, packed into one row of a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from server_app.target.attention import Segment
from server_app.target.model import Chunk
from server_app.target.pages import PagedSequence


@dataclass(slots=True)
class PackedBatch:
    """Chunks one behind the other.

    Attributes:
        ids: of all tokens.
        positions: of the tokens in their texts.
        wanted: rows whose logits are asked for.
        segments: where each chunk lies.
    """

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    @classmethod
    def of(cls, chunks: Iterable[tuple[Chunk, PagedSequence]]) -> PackedBatch:
        """Chunks with their sequences, none of which has the new tokens yet."""
        batch = cls()
        for chunk, sequence in chunks:
            past, count = sequence.length, len(chunk.token_ids)
            batch.segments.append(Segment(sequence, len(batch.ids), count))
            batch.ids += chunk.token_ids
            batch.positions += range(past, past + count)
            batch.wanted += range(len(batch.ids) - chunk.rows, len(batch.ids))
        return batch
