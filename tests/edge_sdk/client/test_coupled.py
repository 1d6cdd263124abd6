"""`coupled` over HTTP: the text is the server's own, whatever drafts, gamma or the link do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.serving import PROMPT, Faults, Serving, connected, other_draft, related_draft

from edge_sdk import EdgeClient, Sampling
from edge_sdk.draft.toy import ToyDraft

TOKENS = 300
WARM = Sampling(temperature=0.9)
DRAFTS = {"related": related_draft, "other vocabulary": other_draft}


async def ids(client: EdgeClient, method: str, *, seed: int, **options: object) -> list[int]:
    options = {"sampling": WARM, "max_tokens": TOKENS, **options}
    async with client.generate(PROMPT, method=method, seed=seed, **options) as stream:  # type: ignore[arg-type]
        async for _ in stream:
            pass
    if method == "coupled":
        assert stream.stats.accepted > 0
        assert stream.stats.accepted < stream.stats.examined
    return [token.id for token in stream.tokens]


@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS.keys())
@pytest.mark.parametrize("gamma", [1, 3, 7])
async def test_the_text_is_the_servers_own(
    server: Serving, gamma: int, draft: Callable[[], ToyDraft]
) -> None:
    async with connected(server, draft()) as client:
        texts = []
        for seed in (1, 2**64 - 1):
            alone = await ids(client, "autoregressive", seed=seed)
            assert await ids(client, "coupled", seed=seed, gamma=gamma) == alone
            texts.append(alone)
    assert texts[0] != texts[1]
    assert len(texts[0]) == TOKENS


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7, top_k=12),
        Sampling(temperature=1.3, top_p=0.8),
        Sampling(temperature=1.0, min_p=0.05),
        Sampling(temperature=0.8, repetition_penalty=1.4),
        Sampling(temperature=0),
    ],
    ids=["top-k", "top-p", "min-p", "penalty", "temperature 0"],
)
async def test_under_every_transform(server: Serving, sampling: Sampling) -> None:
    async with connected(server, other_draft()) as client:
        options = {"sampling": sampling, "max_tokens": 60}
        alone = await ids(client, "autoregressive", seed=5, **options)
        assert await ids(client, "coupled", seed=5, gamma=4, **options) == alone


async def test_whatever_the_link_loses(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        alone = await ids(client, "autoregressive", seed=8, max_tokens=60)
    faults = Faults("/verify", ["lose", "ok", "cut", "ok", "refuse", "slow", "ok"] * 4)
    async with connected(server, related_draft(), faults=faults) as client:
        assert await ids(client, "coupled", seed=8, gamma=3, max_tokens=60) == alone
    assert faults.seen > 12


async def test_another_seed_is_another_text(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        one = await ids(client, "coupled", seed=1, gamma=3)
        assert await ids(client, "autoregressive", seed=2) != one
