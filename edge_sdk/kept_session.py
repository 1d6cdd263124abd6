"""A session that outlives its text, so that the next one finds the server warm."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from edge_sdk.connection import Connection
from edge_sdk.errors import BaseMismatch, CosdError, SequenceConflict, SequenceGap, SessionLost
from edge_sdk.session import Request, Session
from edge_sdk.stats import Stats
from edge_sdk.wire import Extend, Truncate


class SessionLine:
    """What one text hands to the next: a session, where it is known how it stands.

    Attributes:
        session_id: of the session that is kept; empty if there is none.
        pair_id: V_C it was opened with.
        next_sequence: number of its next request.
    """

    def __init__(self, client: Connection) -> None:
        self.session_id = ""
        self.pair_id: str | None = None
        self.next_sequence = 0
        self._client = client
        self._settling: asyncio.Task[bool] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def note(self, session_id: str, pair_id: str | None, next_sequence: int) -> None:
        """A session stands."""
        if session_id != self.session_id:
            self.drop()
        self._loop = asyncio.get_running_loop()
        self.session_id, self.pair_id = session_id, pair_id
        self.next_sequence = next_sequence

    def settle(self, under_way: Sequence[asyncio.Task[Any]], next_sequence: int | None) -> None:
        """Its text is over; see `Session.leave`."""
        if next_sequence is None:
            for task in under_way:
                task.cancel()
            self.drop()
            return
        self.next_sequence = next_sequence
        if under_way:
            # Their numbers are used: the next request is known only when they came through.
            self._settling = asyncio.create_task(_all_well(under_way))

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens of the text, in the background."""
        if not self.session_id:
            return
        message = Truncate(self.next_sequence, length)
        self.next_sequence += 1
        before = self._settling

        async def truncated() -> bool:
            if before is not None and not await before:
                return False
            try:
                await self._client.transport.truncate(self.session_id, message)
            except CosdError:
                return False
            return True

        self._settling = asyncio.create_task(truncated())

    async def usable(self, pair_id: str | None) -> bool:
        """Whether a text of this pair may go on in the session; waits until it is known."""
        settling = self._settling
        if settling is not None and not await asyncio.shield(settling):
            self.drop()
        self._settling = None
        if self.pair_id != pair_id:
            self.drop()
        return bool(self.session_id)

    def abandon(self) -> None:
        """`drop`, from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.drop)

    def drop(self) -> None:
        """End the session, in the background."""
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        if self.session_id:
            self._client.forget(self.session_id)
        self.session_id = ""


class KeptSession(Session):
    """A session of a line: goes on in the one before where that one is still there."""

    def __init__(
        self, client: Connection, request: Request, stats: Stats, line: SessionLine
    ) -> None:
        super().__init__(client, request, stats)
        self._line = line

    async def open(
        self,
        generated: Sequence[int] = (),
        next_sequence: int = 0,
        state: float | None = None,
    ) -> None:
        if not self.session_id and await self._extended():
            return
        await super().open(generated, next_sequence, state)
        self._line.note(self.session_id, self.pair_id, next_sequence)

    async def _extended(self) -> bool:
        client, line = self._client, self._line
        if not await line.usable(self.pair_id):
            return False
        message = Extend(line.next_sequence, self._request.prompt, self.generation)
        session_id = line.session_id
        try:
            extended = await client.outage.through(
                lambda: client.transport.extend(session_id, message)
            )
        except (SessionLost, SequenceConflict, SequenceGap, BaseMismatch):
            line.drop()
            return False
        self.session_id = session_id
        self.next_sequence = line.next_sequence = message.sequence + 1
        self.room = client.card.context - extended.prompt_tokens
        self._stats.prompt_tokens = extended.prompt_tokens
        self._stats.reused_tokens = extended.reused
        return True

    async def leave(
        self, under_way: Sequence[asyncio.Task[Any]], next_sequence: int | None
    ) -> None:
        self._line.settle(under_way, next_sequence)

    def close(self) -> None:
        # The line keeps what it knows of.
        if self.session_id != self._line.session_id:
            super().close()


async def _all_well(tasks: Sequence[asyncio.Task[Any]]) -> bool:
    await asyncio.wait(tasks)
    return all(not task.cancelled() and task.exception() is None for task in tasks)
