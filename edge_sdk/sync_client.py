"""The client for programs that do not await."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from edge_sdk.chat import Message
from edge_sdk.client import EdgeClient
from edge_sdk.closing import Closing
from edge_sdk.conversation import Conversation
from edge_sdk.errors import InvalidRequest
from edge_sdk.loop_thread import LoopThread
from edge_sdk.result import Result
from edge_sdk.stats import Stats
from edge_sdk.stream import Stream
from edge_sdk.text.tokens import Token
from edge_sdk.text.transcript import Piece

P = ParamSpec("P")
R = TypeVar("R")


def _arguments_of(
    source: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """The decorated method has the arguments of another one, for checkers and for `help`."""

    def decorate(method: Callable[..., R]) -> Callable[Concatenate[Any, P], R]:
        # Only where the arguments are read from: name and docstring stay the method's own.
        functools.update_wrapper(method, source, assigned=(), updated=())
        return cast("Callable[Concatenate[Any, P], R]", method)

    return decorate


class EdgeClientSync(Closing):
    """`EdgeClient` without `await`: the same arguments, texts and errors.

    It runs an `EdgeClient` in a thread of its own, so it may be used from several threads, and
    also where an event loop runs (a notebook), which it blocks like any other call. Ctrl-C
    stops the text under way and leaves the client usable.

    Example:
        with EdgeClientSync("http://127.0.0.1:8077", draft="smollm2-draft") as client:
            for piece in client.generate("The sea is"):
                print(piece.text, end="", flush=True)

    Args: see `EdgeClient`. Functions that are passed in (`api_key`, `on_link`, `on_round`) are
    called in the client's own thread.
    """

    @_arguments_of(EdgeClient.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        self._thread = LoopThread()
        try:
            self._client = self._thread.call(EdgeClient, *args, **options)
        except BaseException:
            self._thread.close()
            raise

    def __enter__(self) -> Self:
        try:
            self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def connect(self) -> None:
        """See `EdgeClient.connect`."""
        self._thread.run(self._client.connect)

    def close(self) -> None:
        """Close sessions, connections and, if it was loaded here, the draft, and end the
        client's thread. Idempotent.

        Texts still being generated in other threads end with an `InvalidRequest`.
        """
        if self._thread.closed:
            return
        try:
            self._thread.run(self._client.aclose)
        finally:
            self._thread.close()

    @_arguments_of(EdgeClient.generate)
    def generate(self, *args: Any, **options: Any) -> StreamSync:
        """Generate a text, piece by piece; see `EdgeClient.generate`."""
        return StreamSync(self._thread, self._thread.call(self._client.generate, *args, **options))

    @_arguments_of(EdgeClient.complete)
    def complete(self, *args: Any, **options: Any) -> Result:
        """Generate a text and wait for all of it; see `EdgeClient.complete`."""
        return self._thread.run(self._client.complete, *args, **options)

    @_arguments_of(EdgeClient.conversation)
    def conversation(self, *args: Any, **options: Any) -> ConversationSync:
        """A chat whose turns find draft and server warm; see `EdgeClient.conversation`."""
        return ConversationSync(
            self._thread, self._thread.call(self._client.conversation, *args, **options)
        )


class StreamSync(Closing):
    """`Stream` without `await`: an iterator and context manager."""

    def __init__(self, thread: LoopThread, stream: Stream) -> None:
        self._thread = thread
        self._stream = stream

    @property
    def text(self) -> str:
        """The text so far, with what is not verified yet."""
        return self._stream.text

    @property
    def tokens(self) -> Sequence[Token]:
        """Target tokens so far, all of them certain."""
        return self._stream.tokens

    @property
    def unverified(self) -> Sequence[Token]:
        """Tokens after them that were shown and are the draft's alone; see `Stream`."""
        return self._stream.unverified

    @property
    def stats(self) -> Stats:
        """What the text has cost so far."""
        return self._stream.stats

    @property
    def finish(self) -> str | None:
        """Why the text is complete: "end", "length", "context" or "stop"; None until then."""
        return self._stream.finish

    @property
    def seed(self) -> int:
        """Root of every coin of this text."""
        return self._stream.seed

    def result(self) -> Result:
        """The whole text, once it is complete; see `Stream.result`."""
        return self._thread.run(self._stream.result)

    def __iter__(self) -> Iterator[Piece]:
        try:
            while (piece := self._next()) is not None:
                yield piece
        finally:
            self._leave()

    def __next__(self) -> Piece:
        piece = self._next()
        if piece is None:
            raise StopIteration
        return piece

    def close(self) -> None:
        """Stop generating. Idempotent."""
        if not self._thread.closed:
            self._thread.run(self._stream.aclose)

    def _next(self) -> Piece | None:
        return self._thread.run(_next_piece, self._stream)

    def _leave(self) -> None:
        """The loop over it was left, perhaps long ago and by the garbage collector."""
        if self._thread.is_current:
            self._thread.post(self._stream.aclose)
            return
        with contextlib.suppress(InvalidRequest):  # the client was closed meanwhile
            self.close()


class ConversationSync(Closing):
    """`Conversation` without `await`."""

    def __init__(self, thread: LoopThread, conversation: Conversation) -> None:
        self._thread = thread
        self._conversation = conversation

    @property
    def messages(self) -> Sequence[Message]:
        """See `Conversation.messages`."""
        return self._conversation.messages

    @_arguments_of(Conversation.say)
    def say(self, *args: Any, **options: Any) -> StreamSync:
        """Say something; the answer comes piece by piece. See `Conversation.say`."""
        return StreamSync(self._thread, self._thread.call(self._conversation.say, *args, **options))

    @_arguments_of(Conversation.ask)
    def ask(self, *args: Any, **options: Any) -> Result:
        """Say something and wait for the whole answer. See `Conversation.ask`."""
        return self._thread.run(self._conversation.ask, *args, **options)

    def undo(self) -> Sequence[Message]:
        """Take back the last turn; see `Conversation.undo`."""
        return self._conversation.undo()

    def close(self) -> None:
        """End the session on the server. Idempotent."""
        if not self._thread.closed:
            self._thread.run(self._conversation.aclose)


async def _next_piece(stream: Stream) -> Piece | None:
    # An error named StopAsyncIteration cannot leave a task as what it is.
    try:
        return await anext(stream)
    except StopAsyncIteration:
        return None
