"""`greedy` over HTTP on the real pair in fp32: the text is the target's own greedy text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.serving import Serving, serving

from edge_sdk import EdgeClient
from edge_sdk.draft.onnx import OnnxDraft

pytestmark = [pytest.mark.models, pytest.mark.timeout(900)]

TOKENS = 64
PROMPTS = (
    "The lighthouse keeper climbed the stairs and",
    "The population grew from 12,400 in 1850 to",
    "def is_prime(n):\n",
    "Die Stadt Wien liegt an der Donau und",
    "Ingredients:\n- 2 cups of flour\n-",
)


@pytest.fixture(scope="module")
def served(gemma_folder: Path) -> Iterator[Serving]:
    from server_app.target.hugging_face import HuggingFaceTarget

    def load() -> HuggingFaceTarget:
        return HuggingFaceTarget.load(gemma_folder, dtype="float32")

    with serving(load) as server:  # type: ignore[arg-type]
        yield server


@pytest.fixture(scope="module")
def draft(smollm2_draft_folder: Path) -> Iterator[OnnxDraft]:
    with OnnxDraft.open(smollm2_draft_folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def own_texts(gemma_folder: Path, served: Serving) -> dict[str, list[int]]:
    """Greedy ids of the stock model with its stock cache."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(gemma_folder, dtype=torch.float32).eval()
    masked = torch.tensor(served.target.vocabulary.masked_ids.tolist())
    ends = served.target.vocabulary.end_ids
    texts = {}
    with torch.inference_mode():
        for prompt in PROMPTS:
            fed, cache, ids = torch.tensor([served.target.encode(prompt)]), None, []
            while len(ids) < TOKENS and not (ids and ids[-1] in ends):
                out = model(input_ids=fed, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                logits = out.logits[0, -1]
                logits[masked] = -torch.inf
                ids.append(int(logits.argmax()))
                fed = torch.tensor([[ids[-1]]])
            texts[prompt] = ids
    return texts


@pytest.mark.parametrize("gamma", [1, 3, 7])
async def test_greedy_text_is_the_targets_own(
    served: Serving, draft: OnnxDraft, own_texts: dict[str, list[int]], gamma: int
) -> None:
    async with EdgeClient(served.url, draft=draft, cache=None) as client:
        for prompt, own in own_texts.items():
            stream = client.generate(prompt, method="greedy", max_tokens=TOKENS, gamma=gamma)
            async with stream:
                async for _ in stream:
                    pass
            assert [token.id for token in stream.tokens] == own
            assert stream.stats.accepted > 0
