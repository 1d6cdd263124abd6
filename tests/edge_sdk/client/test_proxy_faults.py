"""Texts through a network that delays, cuts, truncates, stalls and repeats at random.

`COSD_FAULT_TEXTS=1000 pytest tests/edge_sdk/client/test_proxy_faults.py` writes a thousand; the
default is a small share of them.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any, Final

import pytest
from harness.serving import (
    GREEDY,
    PROMPT,
    Serving,
    connected,
    greedy_ids,
    other_draft,
    related_draft,
    until,
)

from bench.link_proxy import Fault, LinkProxy, Shape, random_faults
from edge_sdk import EdgeClient, Retry, Stream

TEXTS: Final = int(os.environ.get("COSD_FAULT_TEXTS", "24"))
TOKENS: Final = 24
TEXTS_PER_CLIENT: Final = 8
PATIENT: Final = Retry(attempts=40, first=0.005, longest=0.1)
SHAPE: Final = Shape(delay=0.001, jitter=0.004)
# Each happens about once a text, whatever the transport.
OFTEN: Final = {"cut": 0.02, "truncate": 0.02, "stall": 0.01, "duplicate": 0.03}

pytestmark = pytest.mark.timeout(60 + 3 * TEXTS)


async def whole(stream: Stream) -> list[int]:
    """Ids of a complete text, whose pieces join to what the tokens stand for."""
    async with stream:
        pieces = [piece.text async for piece in stream]
    assert stream.finish == "length"
    assert "".join(pieces) == stream.text
    ids = [token.id for token in stream.tokens]
    assert len(ids) == TOKENS
    assert stream.text == b"".join(token.data for token in stream.tokens).decode(errors="replace")
    return ids


def options(number: int) -> dict[str, Any]:
    """Every way to draft comes by: adaptive, one block at a time, ahead, the server alone."""
    paces: list[dict[str, Any]] = [
        {},
        {"gamma": 3},
        {"gamma": 2, "window": 4},
        {"gamma": 5, "window": 2},
    ]
    methods = ["coupled", "coupled", "autoregressive", "hybrid", "candidates"]
    method = methods[number % len(methods)]
    pace = {} if method == "autoregressive" else paces[number // len(methods) % len(paces)]
    sampling = GREEDY if method in ("hybrid", "candidates") else None
    return {"method": method, "sampling": sampling, "seed": number, **pace}


async def undisturbed(client: EdgeClient, server: Serving, number: int) -> list[int]:
    """The server's own text for the seed; at temperature 0 the target's own."""
    if options(number)["sampling"] is GREEDY:
        return greedy_ids(server.target, PROMPT, TOKENS)
    own = client.generate(PROMPT, method="autoregressive", seed=number, max_tokens=TOKENS)
    return await whole(own)


@pytest.mark.parametrize("transport", ["http", "websocket", "auto"])
async def test_every_text_is_whole_and_the_undisturbed_one(server: Serving, transport: str) -> None:
    count, shared = -(-TEXTS // 3), 0
    happened: Counter[Fault] = Counter()
    retries = 0
    async with connected(server) as calm:
        for first in range(0, count, TEXTS_PER_CLIENT):
            faults = random_faults(first, **OFTEN)
            proxy = LinkProxy(
                server.port, shape=SHAPE, faults=faults, stall_seconds=0.05, seed=first
            )
            draft = (related_draft, other_draft)[first // TEXTS_PER_CLIENT % 2]()
            async with (
                proxy,
                connected(proxy.url, draft, retry=PATIENT, transport=transport) as client,
            ):
                for number in range(first, min(first + TEXTS_PER_CLIENT, count)):
                    stream = client.generate(PROMPT, max_tokens=TOKENS, **options(number))
                    ids = await whole(stream)
                    assert ids == await undisturbed(calm, server, number), options(number)
                    shared += 1
                    retries += stream.stats.retries
            happened += proxy.faults
    assert shared == count
    # Nothing that the network repeated was opened for good.
    await until(lambda: server.sessions == 0)
    # A few texts may not meet every kind.
    assert sum(happened.values()) > count / 4, happened
    assert count < 100 or all(happened[fault] for fault in Fault), happened
    assert retries > 0
