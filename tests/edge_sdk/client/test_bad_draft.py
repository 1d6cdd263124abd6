"""Drafts that share nothing with the target, or whose logits are no numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from harness.serving import PROMPT, Serving, connected, ids_of, related_draft, serving
from numpy.typing import NDArray

from edge_sdk.draft.toy import ToyDraft
from edge_sdk.errors import ModelError, VocabularyMismatch


async def test_a_draft_that_shares_nothing() -> None:
    from edge_sdk.draft.toy_text import toy_vocabulary

    strange = toy_vocabulary([b"\x00\x01", b"\x00\x02", b"\x00\x03\x04"])
    with serving() as server, pytest.raises(VocabularyMismatch, match="shares 0 of"):
        async with connected(server, ToyDraft.random(1, strange)):
            pass


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("method", ["greedy", "hybrid"])
async def test_a_draft_whose_logits_are_no_numbers(
    server: Serving, method: str, value: float
) -> None:
    draft = related_draft()
    logits = draft._logits

    def broken(ids: Sequence[int]) -> NDArray[np.floating]:
        row = logits(ids).copy()
        if draft.length > 30:
            row[7] = value
        return row

    draft._logits = broken
    async with connected(server, draft) as client:
        stream = client.generate(PROMPT, method=method, max_tokens=200, seed=1, gamma=3)
        with pytest.raises(ModelError, match="draft's logits contain"):
            await ids_of(stream)
        assert len(stream.tokens) > 3
        draft._logits = logits
        assert len(await ids_of(client.generate(PROMPT, max_tokens=3))) == 3
