"""`uncertain` over HTTP: tokens kept without asking ride along, and the text is lossy."""

from __future__ import annotations

import math
from typing import Any

import pytest
from harness.serving import (
    PROMPT,
    TABLE,
    VOCABULARY,
    Serving,
    connected,
    other_draft,
    related_draft,
)

from edge_sdk import EdgeClient, Origin, Sampling
from edge_sdk.decoding.laws import shaped
from edge_sdk.decoding.method import Method
from edge_sdk.decoding.uncertain import Uncertain
from edge_sdk.transport import Exchange
from edge_sdk.wire import Verdict, Verify
from edge_sdk.wire.packing import unpack_ranks

WARM = Sampling(temperature=1.0)


def spied(client: EdgeClient, monkeypatch: pytest.MonkeyPatch) -> list[Verify]:
    """What the client sends from now on."""
    sent: list[Verify] = []
    verify = client.transport.verify

    async def watched(session_id: str, message: Verify) -> tuple[Verdict, Exchange]:
        sent.append(message)
        return await verify(session_id, message)

    monkeypatch.setattr(client.transport, "verify", watched)
    return sent


@pytest.mark.parametrize("draft", [related_draft, other_draft])
async def test_kept_tokens_ride_along(
    server: Serving, draft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server, draft()) as client:
        sent = spied(client, monkeypatch)
        method = Uncertain(u_th=0.9)
        stream = client.generate(PROMPT, method=method, sampling=WARM, max_tokens=120, seed=4)
        async for _ in stream:
            pass
        target_ids = client.alignment.target_ids
    tokens = stream.tokens
    unverified = [token.id for token in tokens if token.origin == Origin.UNVERIFIED]
    assert 10 < len(unverified) < len(tokens)
    # What was kept after the last request was sent to nobody.
    ridden = [
        int(target_ids[rank])
        for message in sent
        for rank in unpack_ranks(message.kept, size=len(target_ids), field="kept")
    ]
    assert ridden == unverified[: len(ridden)]
    assert len(ridden) > 5
    ids = [token.id for token in tokens]
    for message in sent:
        kept = unpack_ranks(message.kept, size=len(target_ids), field="kept")
        before = ids[message.base - len(kept) : message.base]
        assert before == target_ids[kept].tolist()
    assert stream.stats.target_calls == len(sent) < len(tokens)
    assert len(unverified) < stream.stats.drafted <= len(unverified) + len(sent)


async def test_never_sure_asks_for_every_token(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        stream = client.generate(
            PROMPT, method=Uncertain(u_th=0.0), sampling=WARM, max_tokens=30, seed=1
        )
        async for _ in stream:
            pass
    assert all(token.origin != Origin.UNVERIFIED for token in stream.tokens)
    assert stream.stats.target_calls > 10


async def test_it_fails_to_be_lossless_and_hybrid_does_not(server: Serving) -> None:
    """First tokens of many seeds, counted where the draft's law is above the target's."""
    draft = related_draft()
    prompt_ids = server.target.encode(PROMPT)
    target_logits = TABLE.logits(prompt_ids).copy()
    target_logits[VOCABULARY.masked_ids] = -math.inf
    p = shaped(target_logits, WARM)
    draft.append(draft.text.prompt(PROMPT))
    q_logits = draft.next_logits()
    q_logits[VOCABULARY.masked_ids] = -math.inf
    q = shaped(q_logits, WARM)
    draft.reset()
    above = q > p
    expected, drafted = float(p[above].sum()), float(q[above].sum())
    count = 400
    error = math.sqrt(expected * (1 - expected) / count)
    assert drafted - expected > 6 * error

    async def share(client: EdgeClient, method: Method | str) -> float:
        hits = 0
        for seed in range(count):
            stream = client.generate(
                PROMPT,
                method=method,  # type: ignore[arg-type]
                sampling=WARM,
                max_tokens=1,
                seed=seed,
                gamma=1,
            )
            async for _ in stream:
                pass
            hits += bool(above[stream.tokens[0].id])
        return hits / count

    async with connected(server, draft) as client:
        assert abs(await share(client, "hybrid") - expected) < 4 * error
        assert abs(await share(client, Uncertain(u_th=1.0)) - expected) > 5 * error
