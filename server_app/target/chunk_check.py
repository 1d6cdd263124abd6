"""What every target model refuses before a pass."""

from __future__ import annotations

from collections.abc import Sequence

from edge_sdk.errors import InvalidRequest, PromptTooLong
from server_app.target.model import Chunk, TargetModel


def check_chunks(target: TargetModel, chunks: Sequence[Chunk]) -> None:
    """Check chunks whose sequences are the target's.

    Raises:
        PromptTooLong: a sequence would outgrow the context.
        InvalidRequest: a chunk is empty, an id is out of range, more rows than tokens, or a
            sequence twice in a pass.
    """
    if len({chunk.sequence for chunk in chunks}) != len(chunks):
        raise InvalidRequest("a sequence is twice in one pass", field="chunks")
    width, context = len(target.vocabulary), target.context
    for chunk in chunks:
        count, length = len(chunk.token_ids), chunk.sequence.length
        if not 0 <= chunk.rows <= count or not count:
            raise InvalidRequest(f"{chunk.rows} rows of a chunk of {count} tokens", field="chunks")
        if min(chunk.token_ids) < 0 or max(chunk.token_ids) >= width:
            raise InvalidRequest(f"a token id is outside 0 to {width - 1}", field="token_ids")
        if length + count > context:
            raise PromptTooLong(
                f"{length + count} tokens do not fit the context of {context} of {target.name}"
            )
