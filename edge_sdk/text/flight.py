"""Blocks under way to the server and back."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from edge_sdk.errors import SessionLost
from edge_sdk.session import MAX_REOPENS, Session
from edge_sdk.text.blocks import Block
from edge_sdk.text.rounds import Rounds
from edge_sdk.transport import Exchange
from edge_sdk.wire import Verdict


@dataclass(frozen=True, slots=True)
class Answered:
    """A block and what came back.

    Attributes:
        seconds: from sending it to its verdict.
        alone: nothing else was in flight when it was sent.
        sent: when it was sent, on the clock of `time.perf_counter`.
    """

    block: Block
    verdict: Verdict
    exchange: Exchange
    seconds: float
    alone: bool
    sent: float


@dataclass(slots=True)
class _Sent:
    block: Block
    task: asyncio.Task[tuple[Verdict, Exchange, float]]
    alone: bool
    begin: float


class Flight:
    """Sends blocks at once and gives their verdicts in order, over lost sessions too."""

    def __init__(self, session: Session, rounds: Rounds) -> None:
        self._session = session
        self._rounds = rounds
        self._sent: deque[_Sent] = deque()
        self._reopened = 0

    def __len__(self) -> int:
        return len(self._sent)

    def send(self, block: Block) -> None:
        """Send a block without waiting for its verdict."""
        task = asyncio.create_task(self._verified(block))
        # What goes wrong is told when its turn comes.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._sent.append(_Sent(block, task, not self._sent, time.perf_counter()))

    @property
    def ready(self) -> bool:
        """The verdict of the oldest block is there."""
        return bool(self._sent) and self._sent[0].task.done()

    async def refusal(self) -> None:
        """Wait for a verdict that is there or comes, and refuses a block that was not stale; for
        ever if none does. What is drafted on that block is stale."""
        for sent in list(self._sent):
            if sent.block.doomed:
                continue
            await asyncio.wait([sent.task])
            if sent.task.cancelled() or sent.task.exception() is not None:
                break
            if sent.block.refused_by(sent.task.result()[0]):
                return
        await asyncio.get_running_loop().create_future()

    async def ready_before(self, other: Coroutine[Any, Any, object]) -> bool:
        """Wait for the verdict of the oldest block or for something else; whether it is the
        verdict that came."""
        waiting = asyncio.ensure_future(other)
        first = self._sent[0].task
        try:
            await asyncio.wait([first, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        return first.done()

    async def oldest(self) -> Answered | None:
        """The verdict of the oldest block, once it is there; None if nothing is in flight, or
        only stale blocks were and their session is lost.

        A lost session is opened again, and every block that may still be accepted is sent
        again.

        Raises:
            SessionLost: it was lost again and again.
            TransportError, CosdError: see `Transport`.
        """
        while self._sent:
            first = self._sent[0]
            try:
                verdict, exchange, end = await asyncio.shield(first.task)
            except SessionLost as error:
                await self._again(error)
                continue
            self._sent.popleft()
            self._reopened = 0
            return Answered(
                first.block, verdict, exchange, end - first.begin, first.alone, first.begin
            )
        return None

    async def clear(self) -> None:
        """Forget what is in flight."""
        for sent in self._sent:
            sent.task.cancel()
        if self._sent:
            await asyncio.wait([sent.task for sent in self._sent])
        self._sent.clear()

    def release(self) -> list[asyncio.Task[tuple[Verdict, Exchange, float]]]:
        """Hand over what is in flight, oldest first."""
        tasks = [sent.task for sent in self._sent]
        self._sent.clear()
        return tasks

    async def _verified(self, block: Block) -> tuple[Verdict, Exchange, float]:
        verdict, exchange = await self._session.verify(block.verify)
        return verdict, exchange, time.perf_counter()

    async def _again(self, error: SessionLost) -> None:
        self._reopened += 1
        if self._reopened >= MAX_REOPENS:
            raise SessionLost(
                f"the server lost the session {MAX_REOPENS} times in a row; is it out of memory?"
            ) from error
        await self.clear()
        rounds = self._rounds
        blocks = rounds.renewed()
        number = blocks[0].verify.sequence if blocks else rounds.next_sequence
        await self._session.reopen(rounds.generated, number, rounds.state)
        for block in blocks:
            self.send(block)
