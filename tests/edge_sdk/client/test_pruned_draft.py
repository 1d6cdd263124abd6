"""A draft that was exported for one target, over HTTP."""

from __future__ import annotations

import numpy as np
import pytest
from harness.serving import PROMPT, VOCABULARY, Serving, connected, other_draft

from edge_sdk.draft.pruned_head import PrunedHead
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.draft.toy_text import toy_byte_vocabulary
from edge_sdk.errors import VocabularyMismatch
from edge_sdk.vocab import Alignment, Vocabulary


class PrunedToy(ToyDraft):
    """The toy with the logits of what it shares with a target."""

    alignment: Alignment

    @property
    def pruned(self) -> PrunedHead | None:
        return PrunedHead.of(self.alignment, target="toy")

    def next_logits(self) -> np.ndarray:
        return super().next_logits()[self.alignment.draft_ids]


def pruned_for(target: Vocabulary) -> PrunedToy:
    whole = other_draft()
    draft = PrunedToy(whole.vocabulary, whole._logits)
    draft.alignment = Alignment.between(target=target, draft=whole.vocabulary)
    return draft


@pytest.mark.parametrize("method", ["hybrid", "coupled", "upload"])
async def test_texts_are_those_of_the_whole_draft(server: Serving, method: str) -> None:
    texts = []
    for draft in (other_draft(), pruned_for(VOCABULARY)):
        async with connected(server, draft) as client:
            stream = client.generate(PROMPT, method=method, max_tokens=30, gamma=3, seed=11)
            texts.append("".join([piece.text async for piece in stream]))
            assert 0 < stream.stats.acceptance < 1
    assert texts[0] == texts[1]


async def test_another_target_ends_the_connection(server: Serving) -> None:
    draft = pruned_for(toy_byte_vocabulary([b" the", b" other"]))
    with pytest.raises(VocabularyMismatch, match="exported for the target toy alone"):
        async with connected(server, draft):
            pass
