"""One generation as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from types import AsyncGeneratorType
from typing import Final, Self, cast

from edge_sdk.adapt import Controller
from edge_sdk.closing import AsyncClosing
from edge_sdk.connection import Connection
from edge_sdk.decoding.registry import method_named
from edge_sdk.errors import InvalidRequest, UnknownMethod
from edge_sdk.kept_session import KeptSession, SessionLine
from edge_sdk.result import Result
from edge_sdk.session import AUTO, Request, Session
from edge_sdk.stats import Stats
from edge_sdk.text.drafted import DraftedText
from edge_sdk.text.server_alone import server_alone
from edge_sdk.text.tokens import Token
from edge_sdk.text.transcript import Piece, Transcript
from edge_sdk.wire import Finish

_END_SECONDS: Final = 2.0  # how long closing waits for a text that ends in another task


# Who reads where a task of its own carries out every step, as in a client of threads.
READER: ContextVar[object] = ContextVar("reader", default=None)


def reader() -> object:
    """Whoever has to read on for a text to go on."""
    return READER.get() or asyncio.current_task()


class Stream(AsyncClosing):
    """Pieces of a text as they settle: an async iterator and context manager.

    Leaving the loop (or the `async with`) cancels what is under way and closes the session
    on the server. A fault raises; `text`, `tokens` and `stats` keep what came before it.
    """

    def __init__(
        self,
        client: Connection,
        request: Request,
        *,
        line: SessionLine | None = None,
        completed: Callable[[Stream], None] | None = None,
    ) -> None:
        """Args:
        line: the session that the text goes on in, and leaves to the next one.
        completed: called once with this stream when its text is complete.
        """
        self._completed = completed
        self._generation = _Generation(client, request, line)
        self._held: AsyncGenerator[Piece, None] | None = None

    @property
    def text(self) -> str:
        """The text so far, with what is not verified yet."""
        transcript = self._generation.transcript
        return transcript.text + transcript.unverified

    @property
    def tokens(self) -> Sequence[Token]:
        """Target tokens so far, all of them certain."""
        return self._generation.transcript.tokens

    @property
    def unverified(self) -> Sequence[Token]:
        """Tokens after them that were shown and are the draft's alone, with `offline="draft"`."""
        return self._generation.unverified

    @property
    def stats(self) -> Stats:
        """What the text has cost so far."""
        return self._generation.stats

    @property
    def finish(self) -> str | None:
        """Why the text is complete: "end", "length", "context" or "stop"; None until then."""
        return self._generation.finish

    @property
    def seed(self) -> int:
        """Root of every coin of this text."""
        return self._request.generation.seed

    @property
    def under_way(self) -> bool:
        """The text was begun, is not complete, and was not left."""
        return self._generation.under_way

    @property
    def tokens_kept(self) -> int:
        """Leading tokens that lie wholly before the stop string; all of them without one."""
        return self._generation.transcript.tokens_kept

    async def result(self) -> Result:
        """The whole text, once it is complete; reads what was not read yet.

        Raises:
            InvalidRequest: the text was left before it was complete.
        """
        async with self:
            async for _ in self:
                pass
        if self.finish is None:
            raise InvalidRequest("the text was left before it was complete; generate it anew")
        return Result(
            text=self.text,
            tokens=tuple(self.tokens),
            finish=self.finish,
            stats=self.stats,
            seed=self.seed,
        )

    @property
    def _request(self) -> Request:
        return self._generation.request

    @property
    def _session(self) -> Session:
        return self._generation.session

    def __aiter__(self) -> AsyncIterator[Piece]:
        pieces = self._generation.pieces()
        self._held = None
        return _Reader(self, pieces)

    async def __anext__(self) -> Piece:
        self._held = self._generation.pieces()
        return await self._next_of(self._held)

    async def _next_of(self, pieces: AsyncGenerator[Piece, None]) -> Piece:
        try:
            return await self._generation.next_of(pieces)
        except StopAsyncIteration:
            if self.finish is not None and self._completed is not None:
                completed, self._completed = self._completed, None
                completed(self)
            raise

    async def aclose(self) -> None:
        """Stop generating. Idempotent."""
        self._held = None
        await self._generation.aclose()


class _Reader:
    """What a loop over a stream holds."""

    def __init__(self, stream: Stream, pieces: AsyncGenerator[Piece, None]) -> None:
        self._stream = stream
        self._pieces = pieces

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        return await self._stream._next_of(self._pieces)

    async def aclose(self) -> None:
        await self._pieces.aclose()


class _Generation:
    """The text itself. Its generator's frame holds it, and it holds the generator only weakly:
    whoever reads holds that, so that leaving a loop or dropping a stream ends the text and
    frees the draft."""

    def __init__(self, client: Connection, request: Request, line: SessionLine | None) -> None:
        self.stats = Stats(method=request.generation.method)
        self.finish: str | None = None
        self.transcript = Transcript(request.stop)
        self.request = request
        self.session = Session(client, request, self.stats)
        self.unverified: Sequence[Token] = ()
        self._client = client
        self._line = line
        self._drafted: DraftedText | None = None
        self._cancelled = threading.Event()
        self._began = False
        self._closed_with_client = False
        self._over = asyncio.Event()
        self._reader: object = None
        self._stepping: asyncio.Task[object] | None = None  # which runs the generator just now
        self._interrupted = False  # it was cancelled here, not by its own kind
        self._pieces: weakref.ref[AsyncGenerator[Piece, None]] | None = None

    async def next_of(self, pieces: AsyncGenerator[Piece, None]) -> Piece:
        self._reader = reader()
        task = asyncio.current_task()
        assert task is not None
        cancelled = task.cancelling()
        self._stepping = task
        try:
            return await pieces.__anext__()
        except StopAsyncIteration:
            self._tell_if_closed()
            raise
        except asyncio.CancelledError:
            if not self._interrupted or task.uncancel() > cancelled:
                raise
            self._tell_if_closed()
            raise StopAsyncIteration from None
        finally:
            self._stepping = None
            self._interrupted = False

    def _tell_if_closed(self) -> None:
        if self._closed_with_client and self.finish is None:
            raise InvalidRequest(
                "the client was closed while a text was being generated; close it after the text"
            ) from None

    @property
    def under_way(self) -> bool:
        pieces = None if self._pieces is None else self._pieces()
        return pieces is not None and self._began and not self._over.is_set()

    @property
    def waits_for_this_task(self) -> bool:
        """It goes on only if the task that asks reads on."""
        pieces = None if self._pieces is None else self._pieces()
        return (
            pieces is not None
            and not _running(pieces)
            and not self._over.is_set()
            and self._reader is not None
            and self._reader == reader()
        )

    async def aclose(self) -> None:
        """Stop generating. Idempotent."""
        self._cancelled.set()
        pieces = None if self._pieces is None else self._pieces()
        if self._client.closed and self._began and not self._over.is_set():
            self._closed_with_client = True
        elsewhere = pieces is not None and _running(pieces)
        if elsewhere and self._stepping is not None and not self._interrupted:
            # Whatever it waits for, as asyncio.timeout does it.
            self._interrupted = True
            self._stepping.cancel()
        if pieces is not None and not elsewhere:
            await pieces.aclose()
        elif self._began and not (elsewhere and self._client.closed):
            # It is ending in another task, or the loop that left it is about to end it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._over.wait()

    def pieces(self) -> AsyncGenerator[Piece, None]:
        """The one generator of the text; of a text that was left, one without pieces."""
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
            self._reader = None
            self._over.set()

    async def _text_pieces(self) -> AsyncGenerator[Piece, None]:
        client = self._client
        await client.connect()
        request = self._settled_request()
        line, stats = self._line, self.stats
        self.session = (
            Session(client, request, stats)
            if line is None
            else KeptSession(client, request, stats, line)
        )
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
                    if finish or self._drafted is None:
                        self.unverified = ()
                    else:
                        self.unverified = self._drafted.unverified
                    piece = self.transcript.feed(batch, self.unverified)
                    self.stats.tokens = len(self.transcript.tokens)
                    if self.transcript.stopped:
                        self.finish = "stop"
                    elif finish != Finish.NONE:
                        self.finish = finish.name.lower()
                    yield piece
                    if self.finish is not None:
                        break
            rest = self.transcript.close()
            if rest.text or rest.retracted:
                yield rest
        finally:
            self.stats.retries = client.transport.retries - retries
            self.session.close()

    def _settled_request(self) -> Request:
        """The request with the method that "auto" comes to."""
        client, request = self._client, self.request
        if request.generation.method == AUTO:
            known = request.control
            if not isinstance(known, Controller):
                known = client.controller(AUTO, plain=True)
            offered = [name for name in client.card.methods if name != "autoregressive"]
            sampling = request.generation.sampling
            name = known.method(temperature=sampling.temperature, offered=offered)
            method = method_named(name)
            self.request = replace(
                request, method=method, generation=replace(request.generation, method=name)
            )
            self.stats.method = name
        return self.request

    async def _tokens(self) -> AsyncGenerator[tuple[Sequence[Token], Finish], None]:
        client, request = self._client, self.request
        if not request.method.drafts:
            alone = server_alone(client, request, self.session, self.stats)
            async with contextlib.aclosing(alone) as tokens:
                async for item in tokens:
                    yield item
            return
        async with client.drafting(self):
            if isinstance(request.control, Controller):
                request.control.begin(
                    method=request.method.name, temperature=request.generation.sampling.temperature
                )
            text = DraftedText(client, request, self.session, self.stats, self._cancelled)
            self._drafted = text
            async with contextlib.aclosing(text.tokens()) as tokens:
                async for item in tokens:
                    yield item


def _running(pieces: AsyncGenerator[Piece, None]) -> bool:
    return cast("AsyncGeneratorType[Piece, None]", pieces).ag_running


async def _nothing() -> AsyncGenerator[Piece, None]:
    """The pieces of a text that was left."""
    none: Sequence[Piece] = ()
    for piece in none:
        yield piece
