"""All texts of one request, written at the same time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Coroutine, Sequence
from typing import Any, Final

from fastapi import Request

from edge_sdk.errors import CosdError, ServerFault
from server_app.host import Host
from server_app.observability.facts import current_facts
from server_app.openai.served_text import Delta, ServedText
from server_app.openai.text_request import TextRequest

log = logging.getLogger(__name__)

_AHEAD: Final = 64  # deltas that wait for the reader


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class ServedTexts:
    """Each text is a task with a session of its own, so that all of them share the engine's
    steps. Whoever makes this closes it; closing ends every text and its session.

    Text i is choice i mod n of prompt i div n.
    """

    def __init__(self, host: Host, owner: str, request: TextRequest) -> None:
        orders = [
            (prompt, generation)
            for prompt in request.prompts
            for generation in request.generations(host.target.context)
        ]
        self._texts = [
            ServedText(host, owner, prompt, generation, index=index, stop=request.stop or ())
            for index, (prompt, generation) in enumerate(orders)
        ]
        self._choices = request.choices
        self._computed = [asyncio.Event() for _ in request.prompts]
        self._deltas: asyncio.Queue[Delta | CosdError] = asyncio.Queue(_AHEAD)
        self._begun: list[Delta] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompts, each counted once however many choices it has."""
        return sum(text.prompt_tokens for text in self._texts[:: self._choices])

    @property
    def completion_tokens(self) -> int:
        return sum(text.tokens for text in self._texts)

    async def begin(self, request: Request) -> None:
        """Start; returns when every text has a token, so that a refusal comes before the reply.

        Raises:
            CosdError: a text cannot begin.
            ClientGone: the client left.
        """
        self._tasks = [asyncio.create_task(self._write(text)) for text in self._texts]
        waiting = set(range(len(self._texts)))

        async def first_deltas() -> None:
            while waiting:
                delta = await self._next()
                self._begun.append(delta)
                waiting.discard(delta.index)

        await _while_here(request, first_deltas())

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        """Every delta from the first on, those of a text in order.

        Raises:
            CosdError: a text cannot go on.
        """
        left = len(self._texts)
        for delta in self._begun:
            left -= delta.finish_reason is not None
            yield delta
        self._begun = []
        while left:
            delta = await self._next()
            left -= delta.finish_reason is not None
            yield delta

    async def whole(self, request: Request) -> Sequence[tuple[str, str]]:
        """Text and finish reason of each.

        Raises:
            CosdError: a text cannot go on.
            ClientGone: the client left.
        """
        parts: list[list[str]] = [[] for _ in self._texts]
        reasons = ["" for _ in self._texts]

        async def collect() -> None:
            async for delta in self.deltas():
                parts[delta.index].append(delta.text)
                reasons[delta.index] = delta.finish_reason or ""

        await _while_here(request, collect())
        return [("".join(part), reason) for part, reason in zip(parts, reasons, strict=True)]

    async def aclose(self) -> None:
        """End every text. Idempotent."""
        current_facts().tokens = self.completion_tokens
        await _ended(self._tasks)

    async def _next(self) -> Delta:
        item = await self._deltas.get()
        if isinstance(item, CosdError):
            raise item
        prompt, choice = divmod(item.index, self._choices)
        if choice == 0:
            self._computed[prompt].set()
        return item

    async def _write(self, text: ServedText) -> None:
        prompt, choice = divmod(text.index, self._choices)
        try:
            if choice:
                # What the first choice computes of the prompt, the engine shares with the others.
                await self._computed[prompt].wait()
            await text.write(self._deltas)
        except CosdError as error:
            await self._deltas.put(error)
        except Exception:
            log.exception("a text for an OpenAI client failed")
            await self._deltas.put(
                ServerFault("the server failed on this request; its log says why")
            )


async def _while_here(request: Request, work: Coroutine[Any, Any, None]) -> None:
    """Carry out work for a client that waits for it.

    Raises:
        ClientGone: it left first; the work is cancelled.
    """
    gone = asyncio.create_task(_disconnected(request))
    done = asyncio.create_task(work)
    try:
        await asyncio.wait((gone, done), return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise ClientGone
        await done
    finally:
        await _ended((gone, done))


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _ended(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for what they still do, each cancelled once only: a second time
    could catch one while it closes its session."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        if not task.cancelling():
            task.cancel()
    if running:
        await asyncio.wait(running)
