"""All texts of one request, written at the same time or one after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Coroutine, Sequence
from typing import Any, Protocol

from fastapi import Request

from edge_sdk.errors import CosdError, ServerFault
from server_app.openai.interface.delta import Delta

log = logging.getLogger(__name__)


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class Text(Protocol):
    """One text that is being written.

    Attributes:
        index: number of the text in its request.
        prompt_tokens: of the prompt, once known.
        tokens: generated tokens, the end token and those of a stop string included.
    """

    @property
    def index(self) -> int: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    async def write(self, deltas: asyncio.Queue[Delta | CosdError]) -> None:
        """Put the text into a queue, the first delta as soon as there is a token.

        Raises:
            CosdError: the text cannot go on.
        """
        ...


class Texts:
    """Each text is a task. Whoever makes this closes it; closing ends every text.

    Text i is choice i mod n of prompt i div n. The further choices of a prompt begin after the
    first token of the first one, whose work on the prompt they share.

    Args:
        choices: n.
        ahead: deltas that wait for the reader before texts wait too; 0 is any number.
        together: the reply begins when every text has a token, not when one has.
    """

    def __init__(
        self, texts: Sequence[Text], *, choices: int, ahead: int = 0, together: bool = True
    ) -> None:
        self._texts = texts
        self._choices = choices
        self._together = together
        self._computed = [asyncio.Event() for _ in texts[::choices]]
        self._deltas: asyncio.Queue[Delta | CosdError] = asyncio.Queue(ahead)
        self._begun: list[Delta] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def usage(self) -> dict[str, Any]:
        """Tokens of the prompts, each counted once however many choices it has, and of the
        texts."""
        prompt = sum(text.prompt_tokens for text in self._texts[:: self._choices])
        completion = self.completion_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }

    @property
    def completion_tokens(self) -> int:
        return sum(text.tokens for text in self._texts)

    async def begin(self, request: Request) -> None:
        """Start; returns when the reply may begin, so that a refusal comes before it.

        Raises:
            CosdError: a text cannot begin.
            ClientGone: the client left.
        """
        self._tasks = [asyncio.create_task(self._write(text)) for text in self._texts]
        waiting = {text.index for text in self._texts}

        async def first_deltas() -> None:
            while waiting:
                delta = await self._next()
                self._begun.append(delta)
                waiting.discard(delta.index)
                if not self._together:
                    return

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

    async def stop(self, error: CosdError) -> None:
        """End every text, and tell the reader why."""
        await _ended(self._tasks)
        await self._deltas.put(error)

    async def aclose(self) -> None:
        """End every text. Idempotent."""
        await _ended(self._tasks)

    async def _next(self) -> Delta:
        item = await self._deltas.get()
        if isinstance(item, CosdError):
            raise item
        prompt, choice = divmod(item.index, self._choices)
        if choice == 0:
            self._computed[prompt].set()
        return item

    async def _write(self, text: Text) -> None:
        prompt, choice = divmod(text.index, self._choices)
        try:
            if choice:
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
