"""Texts leave nothing behind: memory is flat over them, however many (`COSD_MEMORY_TEXTS=500`)."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import tracemalloc
from typing import Final

import pytest
from harness.serving import PROMPT, Serving, connected, related_draft

from edge_sdk import EdgeClient

TEXTS: Final = int(os.environ.get("COSD_MEMORY_TEXTS", "160"))
_FIRST: Final = 60  # texts until every cache has its size
_ALLOWED: Final = 2048  # bytes a text: less than what a text that is kept would leave
_WAYS: Final = (
    {"method": "hybrid"},
    {"method": "coupled", "gamma": 2, "window": 3},
    {"method": "autoregressive"},
    {"method": "hybrid", "gamma": 3},
)


async def write(client: EdgeClient, number: int) -> None:
    """A text; every fifth is left in the middle."""
    stream = client.generate(PROMPT, max_tokens=6, seed=number, **_WAYS[number % len(_WAYS)])  # type: ignore[arg-type]
    async with stream:
        async for _ in stream:
            if number % 5 == 0:
                break


async def held() -> int:
    """Bytes of Python objects, those of the server in this process included, once what runs in
    the background is over."""
    await asyncio.sleep(0.05)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_memory_is_flat(server: Serving, transport: str) -> None:
    # From the beginning, or what takes the place of older things would look like growth.
    # The test's own capture keeps every log record.
    logging.disable(logging.CRITICAL)
    tracemalloc.start(1)
    try:
        async with connected(server, related_draft(), transport=transport) as client:
            for number in range(_FIRST):
                await write(client, number)
            before = await held()
            for number in range(_FIRST, TEXTS):
                await write(client, number)
            grown = await held() - before
            assert grown < _ALLOWED * (TEXTS - _FIRST), f"{grown} bytes"
            assert len(client.streams) == 0
            assert len(asyncio.all_tasks()) < 8
    finally:
        logging.disable(logging.NOTSET)
        tracemalloc.stop()
