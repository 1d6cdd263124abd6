"""Reading prompts: one key's long ones hold up nobody else's."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from harness.serving import toy_target

from edge_sdk.errors import PromptTooLong, RateLimited
from edge_sdk.wire import Prompt
from server_app.prompt_ids import PromptReader

LONG = "a" * 70_000


def slow_target() -> Any:
    target = toy_target()
    encode = target.encode

    def slow(text: str) -> list[int]:
        if len(text) > 1000:
            time.sleep(0.2)
        return encode(text)

    target.encode = slow  # type: ignore[method-assign]
    return target


async def test_a_short_prompt_does_not_wait_for_long_ones() -> None:
    reader = PromptReader(slow_target())
    long = [asyncio.create_task(reader.ids(Prompt(text=LONG), "many")) for _ in range(4)]
    await asyncio.sleep(0.02)
    begin = time.monotonic()
    assert await reader.ids(Prompt(text="short"), "other")
    assert time.monotonic() - begin < 0.15
    results = await asyncio.gather(*long, return_exceptions=True)
    assert all(isinstance(result, PromptTooLong) for result in results)


async def test_long_prompts_of_two_keys_take_turns() -> None:
    reader = PromptReader(slow_target())
    done: list[str] = []

    async def read(owner: str) -> None:
        with pytest.raises(PromptTooLong):
            await reader.ids(Prompt(text=LONG), owner)
        done.append(owner)

    many = [asyncio.create_task(read("many")) for _ in range(5)]
    await asyncio.sleep(0.02)
    await read("other")
    assert len(done) <= 3
    await asyncio.gather(*many)


async def test_too_many_long_prompts_of_one_key_are_refused() -> None:
    reader = PromptReader(slow_target())
    tasks = [asyncio.create_task(reader.ids(Prompt(text=LONG), "many")) for _ in range(12)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(result, RateLimited) for result in results) == 4
    assert not reader._waiting
    assert not reader._locks
