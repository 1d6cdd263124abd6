"""One text that a draft here and the server write for a client of OpenAI's interface."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from edge_sdk.client import EdgeClient
from edge_sdk.errors import CosdError
from edge_sdk.stats import Stats
from edge_sdk.wire import Generation, Prompt
from server_app.gateway.blame import for_the_asker
from server_app.gateway.pool import Pool
from server_app.openai.interface.delta import Delta

AUTO = "auto"


class DraftedText:
    """A text of a request; see `server_app.openai.interface.texts.Text`.

    Args:
        generation: how it is written, but for the method.
        method: name of the method; "auto" takes what fits the request.
        seeded: the request named a seed, so the text should repeat.
        index: number of the text in its request.
        stop: strings that end the text and are no part of it.

    Attributes:
        stats: what it has cost.
    """

    def __init__(
        self,
        pool: Pool,
        prompt: Prompt,
        generation: Generation,
        *,
        method: str = AUTO,
        seeded: bool = False,
        index: int = 0,
        stop: Sequence[str] = (),
    ) -> None:
        self.index = index
        self.stats = Stats()
        self._pool = pool
        self._prompt = prompt
        self._generation = generation
        self._method = method
        self._seeded = seeded
        self._stop = stop

    @property
    def prompt_tokens(self) -> int:
        return self.stats.prompt_tokens

    @property
    def tokens(self) -> int:
        return self.stats.tokens

    async def write(self, deltas: asyncio.Queue[Delta | CosdError]) -> None:
        """Wait for a client and put the text into a queue.

        Raises:
            CosdError: the text cannot go on; of a class that is right for whoever asked here.
        """
        async with self._pool.client() as client:
            try:
                await client.connect()
                await self._written(client, deltas)
            except CosdError as error:
                raise for_the_asker(error) from error

    async def _written(self, client: EdgeClient, deltas: asyncio.Queue[Delta | CosdError]) -> None:
        prompt, generation = self._prompt, self._generation
        method = self._method
        if method == AUTO:
            method = fitting(
                client.card.methods,
                greedy=generation.sampling.greedy,
                seeded=self._seeded,
                drafts=client.has_draft,
            )
        stream = client.generate(
            prompt.text,
            messages=prompt.messages,
            prompt_ids=prompt.ids,
            method=method,
            sampling=generation.sampling,
            max_tokens=generation.max_tokens,
            stop=self._stop,
            seed=generation.seed,
        )
        self.stats = stream.stats
        begun = False
        async with stream:
            async for piece in stream:
                if piece.text or not begun:
                    begun = True
                    await deltas.put(Delta(self.index, piece.text))
        ended = stream.finish in ("end", "stop")
        await deltas.put(Delta(self.index, "", "stop" if ended else "length"))


def fitting(offered: Sequence[str], *, greedy: bool, seeded: bool, drafts: bool) -> str:
    """The lossless method for a request: with a seed the one whose text the seed alone decides,
    so that it repeats and is the server's own; else the one that accepts most.

    Args:
        offered: methods of the server.
        greedy: temperature 0.
        seeded: a seed was named.
        drafts: there is a draft.
    """
    wanted = "greedy" if greedy else ("coupled" if seeded else "hybrid")
    for name in (wanted, "hybrid") if drafts else ():
        if name in offered:
            return name
    return "autoregressive"
