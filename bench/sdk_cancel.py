"""How long leaving a text takes: while the device drafts, while a verify is in flight, and in
the draft's own reading of a long prompt."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from bench.sdk_draft import TimedDraft
from edge_sdk.client import EdgeClient
from edge_sdk.stream import Stream

_TOKENS: Final = 400
_PROMPT_WORDS: Final = 1500
_ROOM: Final = 16  # tokens of context for each word of the long prompt
_TRIES: Final = 3


async def cancel_seconds(
    client: EdgeClient, draft: TimedDraft, prompt: str, *, tries: int = _TRIES
) -> dict[str, float]:
    """Longest of a few cancelled texts, by where they were.

    Args:
        draft: the client's.
    """
    words = prompt.split()
    count = min(_PROMPT_WORDS, client.card.context // _ROOM, draft.context // _ROOM)
    long = " ".join(words[i % len(words)] for i in range(count))
    places: dict[str, list[float]] = {"drafting": [], "in_flight": [], "prefill": []}
    for number in range(tries):
        for place in places:
            text = f"{number} {long}" if place == "prefill" else prompt
            stream = client.generate(text, max_tokens=_TOKENS, gamma=4, window=1)
            task = asyncio.create_task(_read(stream))
            await _reached(place, stream, draft, task)
            begin = time.perf_counter()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            places[place].append(time.perf_counter() - begin)
    return {place: max(seconds) for place, seconds in places.items()}


async def _read(stream: Stream) -> None:
    async with stream:
        async for _ in stream:
            pass


async def _reached(place: str, stream: Stream, draft: TimedDraft, task: asyncio.Task[None]) -> None:
    """Wait until the text is in the place that is asked for."""
    begun = draft.begun
    while not task.done():
        if place == "prefill":
            if draft.begun > begun:
                await asyncio.sleep(0.05)
                return
        elif stream.stats.rounds >= 2 and draft.busy is (place == "drafting"):
            return
        await asyncio.sleep(0.001)
