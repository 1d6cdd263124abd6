"""Tokens that the server decodes alone, the device reading along."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from edge_sdk.adapt import Plan
from edge_sdk.connection import Connection
from edge_sdk.errors import (
    ConnectionFailed,
    ProtocolError,
    RateLimited,
    SequenceConflict,
    ServerAway,
    ServerUnavailable,
    SessionLost,
    TimedOut,
    error_for_code,
)
from edge_sdk.session import MAX_REOPENS, Request, Session
from edge_sdk.stats import Stats
from edge_sdk.text.meter import Meter
from edge_sdk.text.tokens import Origin, Token
from edge_sdk.waiting import MAX_RETRY_AFTER
from edge_sdk.wire import Finish, Generated


class _EndedEarly(ConnectionFailed):
    """A stream that the server itself ended: the link is up, and waiting would not mend it."""


async def server_alone(
    client: Connection, request: Request, session: Session, stats: Stats
) -> AsyncGenerator[tuple[Sequence[Token], Finish], None]:
    """The text of `autoregressive`.

    Raises:
        ProtocolError: the server sends what cannot be.
        TransportError, ServerUnavailable, SessionLost: trying again did not help.
    """
    pieces = client.vocabulary.pieces
    generated: list[int] = []
    begin = time.perf_counter()
    await session.open()
    stats.open_seconds = time.perf_counter() - begin
    meter = Meter(stats, request.on_round)
    most = request.generation.max_tokens
    stream = meter.stretch(
        stretch_alone(client, session, lambda: generated, most=most),
        Plan(speculate=False, tokens=most),
        round_trip=client.transport.link.round_trip,
    )
    async with contextlib.aclosing(stream) as messages:
        async for token_id, finish in messages:
            generated.append(token_id)
            stats.target_calls += 1
            meter.mark()
            yield (Token(token_id, pieces[token_id], Origin.SERVER),), finish


async def stretch_alone(
    client: Connection,
    session: Session,
    generated: Callable[[], Sequence[int]],
    *,
    most: int,
    limit: int | None = None,
    settled: int | None = None,
    next_sequence: int = 0,
    state: float | None = None,
) -> AsyncGenerator[tuple[int, Finish], None]:
    """Ids as they come, up to the end of the text or `limit` of them. A broken stream is asked
    for again from where it broke, and a lost session is opened again; the same positions give
    the same tokens.

    Args:
        generated: ids of the text; those that come are appended to it by the caller.
        most: tokens that the text may have.
        settled: its last token, if the server does not know it yet.
        next_sequence, state: what a session that is opened again begins with.

    Raises:
        ProtocolError: the server sends what cannot be.
        TransportError, ServerUnavailable, SessionLost: trying again did not help.
    """
    end = None if limit is None else len(generated()) + limit
    failures = reopened = 0
    while True:
        base = len(generated())
        left = None if end is None else end - base
        try:
            async with contextlib.aclosing(session.generate(base, left, settled)) as stream:
                async for message in stream:
                    if message.error is not None:
                        said = message.message or "it does not say why"
                        raise error_for_code(message.error)(f"the server ended its stream: {said}")
                    token_id = _checked(message, len(generated()), client, most)
                    failures = reopened = 0
                    client.outage.over()
                    settled = None
                    yield token_id, Finish(message.finish)
                    if message.finish or len(generated()) == end:
                        return
            raise _EndedEarly("the server's stream ended before the text was complete")
        except SessionLost:
            reopened += 1
            if reopened > MAX_REOPENS:
                raise
            await session.reopen(generated(), next_sequence, state)
            settled = None
        except (
            ConnectionFailed,
            TimedOut,
            RateLimited,
            ServerUnavailable,
            # A network that delivered the request twice: the later one took the stream.
            SequenceConflict,
        ) as error:
            failures += 1
            after = error.retry_after or 0.0
            if failures < client.retry.attempts and after <= MAX_RETRY_AFTER:
                await asyncio.sleep(max(after, client.retry.delay(failures)))
            elif isinstance(error, ConnectionFailed | TimedOut | ServerAway) and not isinstance(
                error, _EndedEarly
            ):
                await client.outage.endure(error)
            else:
                raise


def _checked(message: Generated, length: int, client: Connection, most: int) -> int:
    if message.token is None or not 0 <= message.token < len(client.vocabulary):
        raise ProtocolError(f"the server's stream has token {message.token}")
    if message.finish not in Finish.__members__.values():
        raise ProtocolError(f"the server's stream has finish {message.finish}")
    if length >= most:
        raise ProtocolError(f"the server's stream goes on after {length} tokens")
    return message.token
