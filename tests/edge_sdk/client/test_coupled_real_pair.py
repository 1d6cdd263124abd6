"""`coupled` on the real pair in float32: the server's own text, whatever drafts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.serving import OTHER_VOCABULARY, Serving, connected, serving

from edge_sdk import EdgeClient, Sampling
from edge_sdk.draft.model import DraftModel
from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.draft.toy import ToyDraft

pytestmark = pytest.mark.models

PROMPTS = (
    "The lighthouse keeper climbed the stairs one last time. From the top he could see",
    'def is_prime(n):\n    """Return True if n is a prime number."""\n',
    "Die Stadt Wien ist die Hauptstadt von Österreich. Sie liegt an",
)
TOKENS = 48
SEEDS = (1, 2**64 - 5)
GAMMAS = (1, 3, 7)
WARM = Sampling(temperature=0.7)


@pytest.fixture(scope="module")
def server(gemma_folder: Path) -> Iterator[Serving]:
    from server_app.target.loading import load_target

    target = load_target(gemma_folder, dtype="float32")
    with serving(lambda: target) as running:  # type: ignore[arg-type,return-value]
        yield running


@pytest.fixture(scope="module")
def alone(server: Serving) -> dict[tuple[str, int], list[int]]:
    """The server's own text of each prompt and seed."""
    return {}


@pytest.fixture(scope="module", params=["SmolLM2, 4 bits", "bytes"])
def draft(request: pytest.FixtureRequest, smollm2_draft_folder: Path) -> Iterator[DraftModel]:
    if request.param == "bytes":
        model: DraftModel = ToyDraft.random(3, OTHER_VOCABULARY)
    else:
        model = OnnxDraft.open(smollm2_draft_folder, threads=1)
    yield model
    model.close()


async def ids(client: EdgeClient, prompt: str, method: str, seed: int, gamma: int) -> list[int]:
    async with client.generate(
        prompt, method=method, sampling=WARM, max_tokens=TOKENS, seed=seed, gamma=gamma
    ) as stream:
        async for _ in stream:
            pass
    return [token.id for token in stream.tokens]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("prompt", PROMPTS)
async def test_the_text_is_the_servers_own(
    server: Serving,
    draft: DraftModel,
    alone: dict[tuple[str, int], list[int]],
    prompt: str,
    seed: int,
) -> None:
    async with connected(server, draft, reply=60.0) as client:  # type: ignore[arg-type]
        if (prompt, seed) not in alone:
            alone[prompt, seed] = await ids(client, prompt, "autoregressive", seed, 1)
        for gamma in GAMMAS:
            assert await ids(client, prompt, "coupled", seed, gamma) == alone[prompt, seed]
