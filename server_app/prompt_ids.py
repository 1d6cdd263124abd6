"""From a client's prompt to ids of the target."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final

from edge_sdk.errors import EmptyPrompt, PromptTooLong, RateLimited
from edge_sdk.wire import Prompt
from server_app.engine.admission import check_tokens
from server_app.target.model import TargetModel

_LONG: Final = 64 * 1024  # characters from which on encoding takes a noticeable time
_WAITING: Final = 8  # long prompts of one key, the one being encoded included
_RETRY: Final = 1.0  # seconds


class PromptReader:
    """Encodes prompts outside of the event loop.

    Long ones have a thread of their own and each key one at a time, so that a key with many of
    them holds up neither others' short prompts nor, for long, their long ones.
    """

    def __init__(self, target: TargetModel) -> None:
        self._target = target
        self._short = ThreadPoolExecutor(1, thread_name_prefix="encode")
        self._long = ThreadPoolExecutor(1, thread_name_prefix="encode-long")
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()

    async def ids(self, prompt: Prompt, owner: str) -> list[int]:
        """Ids of a prompt.

        Raises:
            EmptyPrompt: there is nothing to go on from.
            PromptTooLong: no room for a text is left in the context.
            NoChatTemplate: chat messages for a target without a template.
            InvalidRequest: an id is out of range or unused.
            RateLimited: too many long prompts of this owner wait.
        """
        target = self._target
        if prompt.ids is not None:
            check_tokens(prompt.ids, target, "prompt.ids")
            ids = list(prompt.ids)
        elif prompt.messages is not None:
            if not prompt.messages:
                raise EmptyPrompt("the chat has no messages", field="prompt.messages")
            messages = prompt.messages
            size = sum(len(message.content) for message in messages)
            ids = await self._encoded(lambda: target.render(messages), size, owner)
        else:
            if not prompt.text:
                raise EmptyPrompt(
                    "the prompt is empty; give at least one character", field="prompt"
                )
            text = prompt.text
            ids = await self._encoded(lambda: target.encode(text), len(text), owner)
        if not ids:
            raise EmptyPrompt("the prompt has no tokens for this target", field="prompt")
        if len(ids) >= target.context:
            raise too_long(len(ids), target, "prompt")
        return ids

    async def _encoded(self, encode: Callable[[], list[int]], size: int, owner: str) -> list[int]:
        loop = asyncio.get_running_loop()
        if size < _LONG:
            return await loop.run_in_executor(self._short, encode)
        async with self._turn(owner):
            return await loop.run_in_executor(self._long, encode)

    @asynccontextmanager
    async def _turn(self, owner: str) -> AsyncIterator[None]:
        if self._waiting[owner] >= _WAITING:
            raise RateLimited(
                f"{_WAITING} long prompts of this key are being read already; wait for them",
                retry_after=_RETRY,
            )
        self._waiting[owner] += 1
        try:
            async with self._locks.setdefault(owner, asyncio.Lock()):
                yield
        finally:
            self._waiting[owner] -= 1
            if not self._waiting[owner]:
                del self._waiting[owner]
                self._locks.pop(owner, None)


def too_long(length: int, target: TargetModel, field: str) -> PromptTooLong:
    """The error for so many tokens of prompt and text."""
    return PromptTooLong(
        f"{length} tokens of prompt and text leave no room in the target's context of "
        f"{target.context}; shorten the prompt",
        field=field,
    )
