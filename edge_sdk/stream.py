"""One generation as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from types import AsyncGeneratorType, TracebackType
from typing import Final, Self, cast

from edge_sdk.connection import Connection
from edge_sdk.drafted import DraftedText
from edge_sdk.errors import UnknownMethod
from edge_sdk.rounds import Token
from edge_sdk.server_alone import server_alone
from edge_sdk.session import Request, Session
from edge_sdk.stats import Stats
from edge_sdk.transcript import Piece, Transcript
from edge_sdk.wire import Finish

_END_SECONDS: Final = 2.0  # how long closing waits for a text that ends in another task


class Stream:
    """Pieces of a text as they settle: an async iterator and context manager.

    Leaving the loop (or the `async with`) cancels what is under way and closes the session
    on the server. A fault raises; `text`, `tokens` and `stats` keep what came before it.
    """

    def __init__(self, client: Connection, request: Request) -> None:
        self.stats = Stats(method=request.method.name)
        self.finish: str | None = None
        self._client = client
        self._request = request
        self._transcript = Transcript(request.stop)
        self._session = Session(client, request, self.stats)
        self._cancelled = threading.Event()
        self._began = False
        self._over = asyncio.Event()
        # Whoever iterates holds the generator, and not this stream: leaving a loop then ends
        # the generation at once, whether or not the stream is kept.
        self._pieces: weakref.ref[AsyncGenerator[Piece, None]] | None = None
        self._held: AsyncGenerator[Piece, None] | None = None

    @property
    def text(self) -> str:
        """The text so far."""
        return self._transcript.text

    @property
    def tokens(self) -> Sequence[Token]:
        """Target tokens so far."""
        return self._transcript.tokens

    @property
    def seed(self) -> int:
        """Root of every coin of this text."""
        return self._request.generation.seed

    def __aiter__(self) -> AsyncIterator[Piece]:
        pieces = self._generator()
        self._held = None
        return pieces

    async def __anext__(self) -> Piece:
        self._held = self._generator()
        return await self._held.__anext__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop generating. Idempotent."""
        self._cancelled.set()
        pieces = None if self._pieces is None else self._pieces()
        self._held = None
        elsewhere = (
            pieces is not None and cast("AsyncGeneratorType[Piece, None]", pieces).ag_running
        )
        if pieces is not None and not elsewhere:
            await pieces.aclose()
        elif self._began and not (elsewhere and self._client.closed):
            # It is ending in another task, or the loop that left it is about to end it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._over.wait()

    def _generator(self) -> AsyncGenerator[Piece, None]:
        pieces = None if self._pieces is None else self._pieces()
        if pieces is None:
            pieces = self._run() if self._pieces is None else _nothing()
            self._pieces = weakref.ref(pieces)
        return pieces

    async def _run(self) -> AsyncGenerator[Piece, None]:
        self._began = True
        self._client.streams.add(self)
        try:
            pieces = self._text_pieces()
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    yield piece
        finally:
            self._client.streams.discard(self)
            self._over.set()

    async def _text_pieces(self) -> AsyncGenerator[Piece, None]:
        client, request = self._client, self._request
        await client.connect()
        if request.method.name not in client.card.methods:
            raise UnknownMethod(
                f"the server does not offer method {request.method.name!r}; "
                f"it offers {', '.join(client.card.methods)}",
                field="method",
            )
        retries = client.transport.retries
        tokens = self._tokens()
        try:
            async with contextlib.aclosing(tokens):
                async for batch, finish in tokens:
                    piece = self._transcript.feed(batch)
                    self.stats.tokens = len(self._transcript.tokens)
                    if self._transcript.stopped:
                        self.finish = "stop"
                    elif finish != Finish.NONE:
                        self.finish = finish.name.lower()
                    yield piece
                    if self.finish is not None:
                        break
            rest = self._transcript.close()
            if rest.text:
                yield rest
        finally:
            self.stats.retries = client.transport.retries - retries
            if self._session.session_id:
                client.forget(self._session.session_id)

    async def _tokens(self) -> AsyncGenerator[tuple[Sequence[Token], Finish], None]:
        client, request = self._client, self._request
        if not request.method.drafts:
            alone = server_alone(client, request, self._session, self.stats)
            async with contextlib.aclosing(alone) as tokens:
                async for item in tokens:
                    yield item
            return
        async with client.drafting():
            text = DraftedText(client, request, self._session, self.stats, self._cancelled)
            async with contextlib.aclosing(text.tokens()) as tokens:
                async for item in tokens:
                    yield item


async def _nothing() -> AsyncGenerator[Piece, None]:
    """The pieces of a text that was left."""
    none: Sequence[Piece] = ()
    for piece in none:
        yield piece
