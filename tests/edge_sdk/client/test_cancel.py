"""Leaving a text ends it at once, whatever it is doing, and leaves the client usable.

The bounds are loose: they only tell a text that is left from one that is waited for. What
`python -m bench.sdk` measures as `cancel_ms` are milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.serving import (
    PROMPT,
    TABLE,
    VOCABULARY,
    Serving,
    connected,
    serving,
    toy_target,
    until,
)
from numpy.typing import NDArray

from edge_sdk import EdgeClient, Stream
from edge_sdk.draft.model import DraftModel
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.errors import ModelError

SOON = 1.0  # seconds; what is left would take several


class SlowDraft(ToyDraft):
    """Takes 50 ms a token, so a block of 64 takes three seconds."""

    def next_logits(self) -> NDArray[np.float32]:
        time.sleep(0.05)
        return super().next_logits()


class LongPrompt(ToyDraft):
    """Reads its prompt in 200 passes of 50 ms, which `cancel` ends as it ends those of
    onnxruntime: the one under way, or none."""

    begun = 0
    running: threading.Event | None = None
    patient = False

    def next_logits(self) -> NDArray[np.float32]:
        for _ in range(0 if self.patient else 200):
            self.begun += 1
            self.running = threading.Event()
            stopped = self.running.wait(0.05)
            self.running = None
            if stopped:
                raise ModelError("the pass was stopped")
        return super().next_logits()

    def cancel(self) -> None:
        if (running := self.running) is not None:
            running.set()


async def read(stream: Stream) -> None:
    async with stream:
        async for _ in stream:
            pass


async def cancelled(stream: Stream, holds: Callable[[], bool]) -> float:
    """Seconds until the task that reads is gone, once something holds."""
    task = asyncio.create_task(read(stream))
    while not holds():
        assert not task.done(), "the text was over before it could be left"
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert not task.done()
    begin = time.monotonic()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return time.monotonic() - begin


async def writes(client: EdgeClient, **options: Any) -> bool:
    stream = client.generate(PROMPT, method="coupled", max_tokens=3, gamma=1, **options)
    await read(stream)
    return stream.finish == "length"


@pytest.fixture(scope="module")
def slow_server() -> Iterator[Serving]:
    with serving(lambda: toy_target(seconds_per_pass=2.5)) as running:
        yield running


@pytest.mark.parametrize("window", [1, 4])
async def test_while_drafting(server: Serving, window: int) -> None:
    draft = SlowDraft.from_table(VOCABULARY, TABLE)
    async with connected(server, draft) as client:
        stream = client.generate(PROMPT, max_tokens=200, gamma=64, window=window)
        assert await cancelled(stream, lambda: draft.length > len(PROMPT) // 2) < SOON
        assert await writes(client)


@pytest.mark.parametrize("transport", ["http", "websocket"])
@pytest.mark.parametrize("method", ["hybrid", "autoregressive"])
async def test_in_flight(slow_server: Serving, method: str, transport: str) -> None:
    draft = ToyDraft.from_table(VOCABULARY, TABLE)
    async with connected(slow_server, draft, transport=transport) as client:
        stream = client.generate(PROMPT, method=method, max_tokens=50, gamma=2)
        assert await cancelled(stream, lambda: stream._session.room > 0) < SOON


async def test_while_the_server_reads_a_prompt(slow_server: Serving) -> None:
    async with connected(slow_server, ToyDraft.from_table(VOCABULARY, TABLE)) as client:
        stream = client.generate(PROMPT * 3, max_tokens=50)
        assert await cancelled(stream, lambda: bool(stream._session.session_id)) < SOON


async def test_while_the_draft_reads_a_long_prompt(server: Serving) -> None:
    draft = LongPrompt.from_table(VOCABULARY, TABLE)
    async with connected(server, draft) as client:
        stream = client.generate(PROMPT, max_tokens=5)
        assert await cancelled(stream, lambda: draft.begun > 2) < SOON
        draft.patient = True
        assert await writes(client)


@pytest.mark.models
@pytest.mark.timeout(300)
async def test_a_real_draft_stops_reading(server: Serving, smollm2_draft_folder: Path) -> None:
    from edge_sdk.draft.onnx import OnnxDraft

    with OnnxDraft.open(smollm2_draft_folder, threads=1) as model:
        ids = [(7919 * i + 13) % len(model.vocabulary) for i in range(4000)]
        model.append(ids)
        future = asyncio.get_running_loop().run_in_executor(None, model.next_logits)
        await asyncio.sleep(0.5)
        begin = time.monotonic()
        while not future.done() and time.monotonic() < begin + 5:
            model.cancel()
            await asyncio.wait([future], timeout=0.01)
        assert time.monotonic() - begin < SOON
        with pytest.raises(ModelError):
            await future
        model.rewind(10)
        assert np.isfinite(model.next_logits()).all()
        assert isinstance(model, DraftModel)


async def closed_elsewhere(stream: Stream, holds: Callable[[], bool]) -> tuple[float, object]:
    """Seconds until another task has closed a text, and how its reader ended."""
    task = asyncio.create_task(read(stream))
    while not holds():
        assert not task.done(), "the text was over before it could be left"
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    begin = time.monotonic()
    await stream.aclose()
    taken = time.monotonic() - begin
    (ended,) = await asyncio.gather(task, return_exceptions=True)
    assert task.cancelling() == 0
    return taken, ended


@pytest.mark.parametrize("method", ["hybrid", "autoregressive"])
async def test_closing_a_text_that_another_task_reads(slow_server: Serving, method: str) -> None:
    draft = ToyDraft.from_table(VOCABULARY, TABLE)
    async with connected(slow_server, draft) as client:
        stream = client.generate(PROMPT, method=method, max_tokens=50, gamma=2)
        taken, ended = await closed_elsewhere(stream, lambda: stream._session.room > 0)
        assert taken < SOON
        assert ended is None, "its loop just ends"
        assert stream.finish is None


async def test_closing_a_text_while_its_draft_reads_a_long_prompt(server: Serving) -> None:
    draft = LongPrompt.from_table(VOCABULARY, TABLE)
    async with connected(server, draft) as client:
        stream = client.generate(PROMPT, max_tokens=5)
        taken, ended = await closed_elsewhere(stream, lambda: draft.begun > 2)
        assert taken < SOON
        assert ended is None
        draft.patient = True
        assert await writes(client)


async def test_a_reader_that_is_cancelled_too_stays_cancelled(slow_server: Serving) -> None:
    async with connected(slow_server, ToyDraft.from_table(VOCABULARY, TABLE)) as client:
        stream = client.generate(PROMPT, max_tokens=50, gamma=2)
        task = asyncio.create_task(read(stream))
        await until(lambda: stream._session.room > 0)
        closing = asyncio.create_task(stream.aclose())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closing
