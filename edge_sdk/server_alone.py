"""The text of `autoregressive`: the server decodes alone, the device reads along."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence

from edge_sdk.connection import Connection
from edge_sdk.errors import (
    ConnectionFailed,
    ProtocolError,
    RateLimited,
    ServerUnavailable,
    SessionLost,
    TimedOut,
    error_for_code,
)
from edge_sdk.session import MAX_REOPENS, Request, Session
from edge_sdk.stats import Stats
from edge_sdk.tokens import Origin, Token
from edge_sdk.wire import Finish, Generated


async def server_alone(
    client: Connection, request: Request, session: Session, stats: Stats
) -> AsyncGenerator[tuple[Sequence[Token], Finish], None]:
    """Tokens as they come. A broken stream is asked for again from where it broke, and a lost
    session is opened again; the same positions give the same tokens.

    Raises:
        ProtocolError: the server sends what cannot be.
        TransportError, ServerUnavailable, SessionLost: trying again did not help.
    """
    pieces = client.vocabulary.pieces
    generated: list[int] = []
    begin = time.perf_counter()
    await session.open()
    start = time.perf_counter()
    stats.open_seconds = start - begin
    failures = reopened = 0
    while True:
        try:
            async with contextlib.aclosing(session.generate(len(generated))) as stream:
                async for message in stream:
                    if message.error is not None:
                        said = message.message or "it does not say why"
                        raise error_for_code(message.error)(f"the server ended its stream: {said}")
                    token_id = _checked(message, len(generated), client, request)
                    failures = reopened = 0
                    generated.append(token_id)
                    stats.target_calls += 1
                    stats.seconds = time.perf_counter() - start
                    token = Token(token_id, pieces[token_id], Origin.SERVER)
                    yield (token,), Finish(message.finish)
                    if message.finish:
                        return
            raise ConnectionFailed("the server's stream ended before the text was complete")
        except SessionLost:
            reopened += 1
            if reopened > MAX_REOPENS:
                raise
            await session.reopen(generated)
        except (ConnectionFailed, TimedOut, RateLimited, ServerUnavailable):
            failures += 1
            if failures >= client.retry.attempts:
                raise
            await asyncio.sleep(client.retry.delay(failures))


def _checked(message: Generated, length: int, client: Connection, request: Request) -> int:
    if message.token is None or not 0 <= message.token < len(client.vocabulary):
        raise ProtocolError(f"the server's stream has token {message.token}")
    if message.finish not in Finish.__members__.values():
        raise ProtocolError(f"the server's stream has finish {message.finish}")
    if length >= request.generation.max_tokens:
        raise ProtocolError(f"the server's stream goes on after {length} tokens")
    return message.token
