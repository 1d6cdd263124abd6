"""The same text whatever it travels over, and what that costs on the wire."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from harness.raw import ALIGNMENT
from harness.serving import PROMPT, Serving, connected, greedy_ids, related_draft
from harness.sockets import opened

from edge_sdk import Stream
from edge_sdk.transport import AutoTransport, HttpTransport, WebSocketTransport, transport_named
from edge_sdk.wire import Truncate, Verify
from edge_sdk.wire.packing import pack_draft

TRANSPORTS = {"http": HttpTransport, "websocket": WebSocketTransport, "auto": AutoTransport}


async def text_over(server: Serving, transport: Any, **options: Any) -> Stream:
    async with connected(server, related_draft(), transport=transport) as client:
        assert type(client.transport) is TRANSPORTS[transport]
        stream = client.generate(PROMPT, max_tokens=40, gamma=3, **options)
        async for _ in stream:
            pass
    return stream


@pytest.mark.parametrize("method", ["coupled", "hybrid", "candidates", "autoregressive"])
async def test_the_same_seed_gives_the_same_text(server: Serving, method: str) -> None:
    texts = {}
    for transport in TRANSPORTS:
        stream = await text_over(server, transport, method=method, seed=4)
        texts[transport] = [token.id for token in stream.tokens]
        assert stream.stats.retries == stream.stats.reopened == 0
    assert len(texts["http"]) == 40
    assert texts["http"] == texts["websocket"] == texts["auto"]


async def test_coupled_is_what_the_server_writes_alone(server: Serving) -> None:
    texts = [
        [token.id for token in (await text_over(server, "websocket", method=m, seed=6)).tokens]
        for m in ("coupled", "autoregressive")
    ]
    assert texts[0] == texts[1]


async def test_framing_is_counted_to_the_byte(server: Serving) -> None:
    stats = (await text_over(server, "websocket", method="coupled", seed=4)).stats
    # Two bytes of length, four of the mask, one of kind and slot; down no mask, but two of time.
    assert stats.wire_up_bytes - stats.up_bytes == 7 * stats.rounds
    assert stats.wire_down_bytes - stats.down_bytes == 5 * stats.rounds
    http = (await text_over(server, "http", method="coupled", seed=4)).stats
    assert (http.up_bytes, http.down_bytes) == (stats.up_bytes, stats.down_bytes)
    assert http.wire_up_bytes > 8 * stats.wire_up_bytes


async def test_auto_goes_over_to_the_socket(server: Serving) -> None:
    stats = (await text_over(server, "auto", method="coupled", seed=4)).stats
    http = (await text_over(server, "http", method="coupled", seed=4)).stats
    assert stats.wire_up_bytes < 0.7 * http.wire_up_bytes


def drafted(ids: list[int]) -> bytes:
    ranks = np.searchsorted(ALIGNMENT.target_ids, ids)
    return pack_draft(ranks, None, size=len(ALIGNMENT))


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_several_verifies_in_flight(server: Serving, transport: Any) -> None:
    """Six blocks sent at once, the last one first, each of them on the one before it."""
    text = greedy_ids(server.target, PROMPT, 13)
    session = await opened(server, method="greedy")
    by = transport_named(transport, HttpTransport(server.url))
    try:
        await by.card()
        blocks = [
            Verify(
                number,
                2 * number,
                drafted(text[2 * number : 2 * number + 2]),
                parent=number - 1 if number else None,
                more=number < 5,
            )
            for number in range(6)
        ]
        tasks = [asyncio.create_task(by.verify(session, block)) for block in reversed(blocks)]
        verdicts = [verdict for verdict, _ in await asyncio.gather(*tasks)][::-1]
        assert [verdict.sequence for verdict in verdicts] == list(range(6))
        assert [verdict.accepted for verdict in verdicts] == [2] * 6
        assert [verdict.settled for verdict in verdicts] == [None] * 5 + [text[12]]
        assert (await by.truncate(session, Truncate(6, 3))).length == 3
    finally:
        await by.aclose()
