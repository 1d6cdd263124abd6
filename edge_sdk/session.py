"""A session on the server: opened, taken up again when it is lost, and what it costs."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from edge_sdk.connection import Connection
from edge_sdk.control import Control
from edge_sdk.decoding.method import Method
from edge_sdk.errors import UnknownVocabulary
from edge_sdk.peer import register
from edge_sdk.round import OnRound
from edge_sdk.stats import Stats
from edge_sdk.transport import Exchange
from edge_sdk.wire import (
    PROTOCOL_VERSION,
    Answer,
    Ask,
    Generate,
    Generated,
    Generation,
    Open,
    Prompt,
    Verdict,
    Verify,
)

MAX_REOPENS: Final = 8  # in a row, without an answer between them
_REGISTRATIONS: Final = 4  # of V_C, for one opening


@dataclass(frozen=True, slots=True)
class Request:
    """What a stream generates, checked.

    Attributes:
        control: decides how it is drafted.
        adaptive: the control is the client's own, which learns.
        on_round: told every round as it ends.
    """

    prompt: Prompt
    method: Method
    generation: Generation
    control: Control
    stop: Sequence[str]
    adaptive: bool = False
    on_round: OnRound | None = None


class Session:
    """The requests of one text, counted in its `Stats`.

    Attributes:
        session_id: of the latest opening; empty before the first.
        room: tokens that the target's context leaves for the text, once opened.
    """

    def __init__(self, client: Connection, request: Request, stats: Stats) -> None:
        self.session_id = ""
        self.room = 0
        self._generation: Generation | None = None
        self._client = client
        self._request = request
        self._stats = stats

    async def open(
        self,
        generated: Sequence[int] = (),
        next_sequence: int = 0,
        state: float | None = None,
    ) -> None:
        """Open a session that has `generated` behind it already."""
        client, request = self._client, self._request
        drafts = request.method.drafts
        if self._generation is None:
            options = request.method.over(client.transport.link).options()
            self._generation = replace(request.generation, options=options)
        message = Open(
            protocol=PROTOCOL_VERSION,
            pair_id=client.alignment.pair_id if drafts else None,
            prompt=request.prompt,
            generation=self._generation,
            generated=tuple(generated),
            next_sequence=next_sequence,
            state=state,
        )
        # A fresh id, so that what is left of a lost session can never be mistaken for it.
        self.session_id = secrets.token_hex(16)
        if drafts:
            await client.register_pair(self.session_id)
        for left in reversed(range(_REGISTRATIONS)):
            try:
                opened = await client.transport.open(self.session_id, message)
                break
            except UnknownVocabulary:
                # Of several servers another one may serve the session by the next try.
                if not left:
                    raise
                await register(client.transport, client.alignment, self.session_id)
        self.room = opened.context - opened.prompt_tokens

    async def reopen(
        self, generated: Sequence[int], next_sequence: int = 0, state: float | None = None
    ) -> None:
        """Open again after the server lost it."""
        self._stats.reopened += 1
        await self.open(generated, next_sequence, state)

    async def verify(self, message: Verify) -> tuple[Verdict, Exchange]:
        verdict, exchange = await self._client.transport.verify(self.session_id, message)
        self._count(exchange)
        return verdict, exchange

    async def ask(self, message: Ask) -> tuple[Answer, Exchange]:
        answer, exchange = await self._client.transport.ask(self.session_id, message)
        self._count(exchange)
        return answer, exchange

    async def generate(
        self, base: int, limit: int | None = None, settled: int | None = None
    ) -> AsyncGenerator[Generated, None]:
        """Tokens of the server alone from `base` on, at most `limit` of them."""
        message = Generate(base, limit, settled)
        stream = self._client.transport.generate(self.session_id, message)
        try:
            async for token, exchange in stream:
                self._count(exchange)
                yield token
        finally:
            await stream.aclose()

    def _count(self, exchange: Exchange) -> None:
        self._stats.up_bytes += exchange.up_bytes
        self._stats.down_bytes += exchange.down_bytes
        self._stats.wire_up_bytes += exchange.wire_up_bytes
        self._stats.wire_down_bytes += exchange.wire_down_bytes
        self._stats.server_seconds += exchange.server_seconds
