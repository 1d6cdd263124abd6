"""Texts that are left before their first verdict."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest
from harness.gateway import slow_target
from harness.serving import PROMPT, connected, related_draft, serving, until


async def test_leaving_texts_early_does_not_count_against_the_websocket(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="edge_sdk")
    with serving(slow_target(0.15)) as server:
        async with connected(server, related_draft()) as client:
            for _ in range(5):
                stream = client.generate(PROMPT, gamma=2, max_tokens=50)
                reading = asyncio.create_task(anext(aiter(stream)))
                await until(lambda: stream.stats.drafted > 0)  # noqa: B023
                await asyncio.sleep(0.03)
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading
                await stream.aclose()
            await until(lambda: server.sessions == 0)
            await asyncio.sleep(0.3)
    assert "without a WebSocket" not in caplog.text
