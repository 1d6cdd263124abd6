"""One generation as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from types import AsyncGeneratorType, TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar, cast

from edge_sdk.decoding.coins import PrfCoins, Side
from edge_sdk.decoding.method import DeviceContext, Method
from edge_sdk.draft.follower import Follower
from edge_sdk.errors import (
    ConnectionFailed,
    InvalidRequest,
    ProtocolError,
    RateLimited,
    ServerUnavailable,
    SessionLost,
    TimedOut,
    UnknownMethod,
    UnknownVocabulary,
    error_for_code,
)
from edge_sdk.peer import register
from edge_sdk.rounds import Block, Origin, Outcome, Rounds, Token
from edge_sdk.stats import Stats
from edge_sdk.transcript import Piece, Transcript
from edge_sdk.transport import Exchange
from edge_sdk.wire import (
    PROTOCOL_VERSION,
    Finish,
    Generate,
    Generated,
    Generation,
    Open,
    Prompt,
    Verdict,
)

if TYPE_CHECKING:
    from edge_sdk.client import EdgeClient

_END_SECONDS: Final = 2.0  # how long closing waits for a text that ends in another task
_MAX_REOPENS: Final = 8  # in a row, without a verdict between them

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """What a stream generates, checked."""

    prompt: Prompt
    method: Method
    generation: Generation
    gamma: int
    stop: Sequence[str]


class Stream:
    """Pieces of a text as they settle: an async iterator and context manager.

    Leaving the loop (or the `async with`) cancels what is under way and closes the session
    on the server. A fault raises; `text`, `tokens` and `stats` keep what came before it.
    """

    def __init__(self, client: EdgeClient, request: Request) -> None:
        self.stats = Stats(method=request.method.name)
        self.finish: str | None = None
        self._client = client
        self._request = request
        self._transcript = Transcript(request.stop)
        self._session_id = ""
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
        tokens = self._drafted() if request.method.drafts else self._server_alone()
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
            if self._session_id:
                client.forget(self._session_id)

    async def _drafted(self) -> AsyncGenerator[tuple[Sequence[Token], Finish], None]:
        client, request = self._client, self._request
        async with client.drafting():
            draft, alignment = client.draft, client.alignment
            begin = time.perf_counter()
            self.stats.common_vocabulary = len(alignment)
            follower = Follower(draft, alignment, client.vocabulary)
            half = request.method.device_half(
                DeviceContext(
                    target_ids=alignment.target_ids,
                    target_size=len(client.vocabulary),
                    sampling=request.generation.sampling,
                    coins=PrfCoins(seed=request.generation.seed, side=Side.DEVICE),
                    seed=request.generation.seed,
                    token_keys=client.common_keys,
                )
            )
            rounds = Rounds(
                half=half,
                follower=follower,
                alignment=alignment,
                target=client.vocabulary,
                max_tokens=request.generation.max_tokens,
                keeps_sure=request.method.keeps_sure,
            )
            await self._open((), 0)
            await self._in_thread(lambda: self._begin_draft(follower))
            start = time.perf_counter()
            self.stats.open_seconds = start - begin
            while True:
                sure = await self._sure(rounds)
                if sure is not None:
                    self.stats.seconds = time.perf_counter() - start
                    yield sure.tokens, sure.finish
                    continue
                block = await self._block(rounds)
                if block is None:
                    self._check_open()
                    return
                outcome = rounds.receive(await self._verdict(rounds, block))
                self._count_outcome(outcome)
                self.stats.seconds = time.perf_counter() - start
                yield outcome.tokens, outcome.finish
                while outcome.asking:
                    outcome = await self._more(rounds)
                    self.stats.seconds = time.perf_counter() - start
                    yield outcome.tokens, outcome.finish

    def _begin_draft(self, follower: Follower) -> None:
        prompt, text = self._request.prompt, follower.model.text
        if prompt.messages is not None:
            ids = text.chat(prompt.messages)
        elif prompt.text is not None:
            ids = text.prompt(prompt.text)
        else:
            pieces = self._client.vocabulary.pieces
            ids = text.tail(b"".join(pieces[token] for token in prompt.ids or ()))
        follower.begin(ids)
        if follower.room:
            follower.logits()

    async def _block(self, rounds: Rounds) -> Block | None:
        begin = time.perf_counter()
        gamma = self._request.gamma
        block = await self._in_thread(
            lambda: rounds.next_block(gamma, cancelled=self._cancelled.is_set)
        )
        self.stats.draft_seconds += time.perf_counter() - begin
        if block is not None:
            self.stats.drafted += len(block.drafted)
        return block

    async def _sure(self, rounds: Rounds) -> Outcome | None:
        if not self._request.method.keeps_sure:
            return None
        begin = time.perf_counter()
        outcome = await self._in_thread(rounds.keep_sure)
        self.stats.draft_seconds += time.perf_counter() - begin
        return outcome

    async def _more(self, rounds: Rounds) -> Outcome:
        """Ask until the rejected position is settled, in a new session if this one is lost."""
        ask = rounds.ask()
        begin = time.perf_counter()
        try:
            answer, exchange = await self._client.transport.ask(self._session_id, ask)
        except SessionLost:
            self.stats.reopened += 1
            block = rounds.rejected_again()
            await self._open(rounds.generated, block.verify.sequence, rounds.state)
            outcome = rounds.receive(await self._verdict(rounds, block))
            # Its first token was examined before.
            self._count_outcome(replace(outcome, examined=max(0, outcome.examined - 1)))
            return outcome
        self.stats.asks += 1
        self.stats.round_seconds += time.perf_counter() - begin
        self._count(exchange)
        return rounds.answer(answer)

    def _count_outcome(self, outcome: Outcome) -> None:
        self.stats.rounds += 1
        self.stats.examined += outcome.examined
        self.stats.accepted += outcome.accepted
        self.stats.target_calls += not outcome.stale
        if outcome.nll is not None:
            self.stats.target_nll += outcome.nll

    async def _verdict(self, rounds: Rounds, block: Block) -> Verdict:
        for _ in range(_MAX_REOPENS):
            begin = time.perf_counter()
            try:
                verdict, exchange = await self._client.transport.verify(
                    self._session_id, block.verify
                )
            except SessionLost:
                self.stats.reopened += 1
                await self._open(rounds.generated, block.verify.sequence, rounds.state)
                block = rounds.renewed(block)
                continue
            self.stats.round_seconds += time.perf_counter() - begin
            self._count(exchange)
            return verdict
        raise SessionLost(
            f"the server lost the session {_MAX_REOPENS} times in a row; is it out of memory?"
        )

    async def _server_alone(self) -> AsyncGenerator[tuple[Sequence[Token], Finish], None]:
        pieces = self._client.vocabulary.pieces
        generated: list[int] = []
        begin = time.perf_counter()
        await self._open((), 0)
        start = time.perf_counter()
        self.stats.open_seconds = start - begin
        failures = reopened = 0
        while True:
            stream = self._client.transport.generate(self._session_id, Generate(len(generated)))
            try:
                async for message, exchange in stream:
                    self._count(exchange)
                    if message.error is not None:
                        said = message.message or "it does not say why"
                        raise error_for_code(message.error)(f"the server ended its stream: {said}")
                    token_id = self._checked(message, len(generated))
                    failures = reopened = 0
                    generated.append(token_id)
                    self.stats.target_calls += 1
                    self.stats.seconds = time.perf_counter() - start
                    token = Token(token_id, pieces[token_id], Origin.SERVER)
                    yield (token,), Finish(message.finish)
                    if message.finish:
                        return
                raise ConnectionFailed("the server's stream ended before the text was complete")
            except SessionLost:
                reopened += 1
                if reopened > _MAX_REOPENS:
                    raise
                self.stats.reopened += 1
                await self._open(generated, 0)
            except (ConnectionFailed, TimedOut, RateLimited, ServerUnavailable):
                failures += 1
                if failures >= self._client.retry.attempts:
                    raise
                await asyncio.sleep(self._client.retry.delay(failures))
            finally:
                await stream.aclose()

    async def _open(
        self, generated: Sequence[int], next_sequence: int, state: float | None = None
    ) -> None:
        client, request = self._client, self._request
        drafts = request.method.drafts
        message = Open(
            protocol=PROTOCOL_VERSION,
            pair_id=client.alignment.pair_id if drafts else None,
            prompt=request.prompt,
            generation=request.generation,
            generated=tuple(generated),
            next_sequence=next_sequence,
            state=state,
        )
        # A fresh id, so that what is left of a lost session can never be mistaken for it.
        self._session_id = secrets.token_hex(16)
        if drafts:
            await client.register_pair()
        try:
            await client.transport.open(self._session_id, message)
        except UnknownVocabulary:
            await register(client.transport, client.alignment)
            await client.transport.open(self._session_id, message)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Run on the draft's thread. When cancelled, waits until the draft is free again."""
        self._check_open()
        future = asyncio.get_running_loop().run_in_executor(self._client.draft_thread, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._cancelled.set()
            await asyncio.wait([future])
            raise

    def _checked(self, message: Generated, length: int) -> int:
        if message.token is None or not 0 <= message.token < len(self._client.vocabulary):
            raise ProtocolError(f"the server's stream has token {message.token}")
        if message.finish not in Finish.__members__.values():
            raise ProtocolError(f"the server's stream has finish {message.finish}")
        if length >= self._request.generation.max_tokens:
            raise ProtocolError(f"the server's stream goes on after {length} tokens")
        return message.token

    def _check_open(self) -> None:
        if self._client.closed:
            raise InvalidRequest("the client was closed while a text was being generated")

    def _count(self, exchange: Exchange) -> None:
        self.stats.up_bytes += exchange.up_bytes
        self.stats.down_bytes += exchange.down_bytes
        self.stats.wire_up_bytes += exchange.wire_up_bytes
        self.stats.wire_down_bytes += exchange.wire_down_bytes
        self.stats.server_seconds += exchange.server_seconds


async def _nothing() -> AsyncGenerator[Piece, None]:
    """The pieces of a text that was left."""
    none: Sequence[Piece] = ()
    for piece in none:
        yield piece
