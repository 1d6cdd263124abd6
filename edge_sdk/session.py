"""A session on the server: opened, taken up again when it is lost, and what it costs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from edge_sdk.connection import Connection
from edge_sdk.decoding.method import Method
from edge_sdk.errors import UnknownVocabulary
from edge_sdk.peer import register
from edge_sdk.stats import Stats
from edge_sdk.text.control import Control, Fixed
from edge_sdk.text.round import OnRound
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

AUTO: Final = "auto"  # the method is chosen when the text begins
MAX_REOPENS: Final = 8  # in a row, without an answer between them
_REGISTRATIONS: Final = 4  # of V_C, for one opening


@dataclass(frozen=True, slots=True)
class Request:
    """What a stream generates, checked.

    Attributes:
        control: decides how it is drafted.
        on_round: told every round as it ends.
    """

    prompt: Prompt
    method: Method
    generation: Generation
    control: Control
    stop: Sequence[str]
    on_round: OnRound | None = None

    @property
    def adaptive(self) -> bool:
        """The control learns, and may let the server decode alone."""
        return not isinstance(self.control, Fixed)


class Session:
    """The requests of one text, counted in its `Stats`.

    Attributes:
        session_id: of the latest opening; empty before the first.
        room: tokens that the target's context leaves for the text, once opened.
        next_sequence: number of the first numbered request after opening.
    """

    def __init__(self, client: Connection, request: Request, stats: Stats) -> None:
        self.session_id = ""
        self.room = 0
        self.next_sequence = 0
        self._generation: Generation | None = None
        self._client = client
        self._request = request
        self._stats = stats

    @property
    def pair_id(self) -> str | None:
        """V_C as the server knows it, where the method drafts."""
        return self._client.alignment.pair_id if self._request.method.drafts else None

    @property
    def generation(self) -> Generation:
        """How the text is generated, settled for this link once it is asked for."""
        if self._generation is None:
            options = self._request.method.over(self._client.transport.link).options()
            self._generation = replace(self._request.generation, options=options)
        return self._generation

    async def leave(
        self, under_way: Sequence[asyncio.Task[Any]], next_sequence: int | None
    ) -> None:
        """The text is over.

        Args:
            under_way: verifies that nobody reads any more.
            next_sequence: number of the next request; None if that cannot be known.
        """
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)

    def close(self) -> None:
        """End the session, in the background."""
        if self.session_id:
            self._client.forget(self.session_id)

    async def open(
        self,
        generated: Sequence[int] = (),
        next_sequence: int = 0,
        state: float | None = None,
    ) -> None:
        """Open a session that has `generated` behind it already."""
        client, request = self._client, self._request
        drafts = request.method.drafts
        message = Open(
            protocol=PROTOCOL_VERSION,
            pair_id=self.pair_id,
            prompt=request.prompt,
            generation=self.generation,
            generated=tuple(generated),
            next_sequence=next_sequence,
            state=state,
        )
        # A fresh id, so that what is left of a lost session can never be mistaken for it.
        self.session_id = secrets.token_hex(16)
        if drafts:
            await client.outage.through(lambda: client.register_pair(self.session_id))
        for left in reversed(range(_REGISTRATIONS)):
            try:
                opened = await client.outage.through(
                    lambda: client.transport.open(self.session_id, message)
                )
                break
            except UnknownVocabulary:
                # Of several servers another one may serve the session by the next try.
                if not left:
                    raise
                await register(client.transport, client.alignment, self.session_id)
        self.room = opened.context - opened.prompt_tokens
        self.next_sequence = next_sequence
        self._stats.prompt_tokens = opened.prompt_tokens

    async def reopen(
        self, generated: Sequence[int], next_sequence: int = 0, state: float | None = None
    ) -> None:
        """Open again after the server lost it."""
        self._stats.reopened += 1
        await self.open(generated, next_sequence, state)

    async def verify(self, message: Verify) -> tuple[Verdict, Exchange]:
        session_id, client = self.session_id, self._client
        verdict, exchange = await client.outage.through(
            lambda: client.transport.verify(session_id, message)
        )
        self._count(exchange)
        return verdict, exchange

    async def ask(self, message: Ask) -> tuple[Answer, Exchange]:
        session_id, client = self.session_id, self._client
        answer, exchange = await client.outage.through(
            lambda: client.transport.ask(session_id, message)
        )
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
