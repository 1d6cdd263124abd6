"""Sequence numbers of one session: each request takes effect once and in order."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from edge_sdk.errors import SequenceConflict, SequenceGap
from edge_sdk.wire.limits import MAX_WINDOW

GAP_SECONDS: Final = 1.0  # how long a request waits for those before it
KEPT_BYTES: Final = 2 * 1024 * 1024  # of replies that may be asked for again; the last one always


class Numbered:
    """A request that was numbered and not answered yet, or its stored reply."""

    __slots__ = ("_waiting", "digest", "reply")

    def __init__(self, digest: bytes) -> None:
        self._waiting = 0
        self.digest = digest
        self.reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        # A failure is told to whoever waits; nobody may.
        self.reply.add_done_callback(lambda f: f.cancelled() or f.exception())

    def wanted(self) -> bool:
        """Whether somebody waits for the reply. Safe from any thread."""
        return self._waiting > 0

    async def answer(self) -> bytes:
        """The reply; leaving early gives it up without cancelling it for others."""
        self._waiting += 1
        try:
            return await asyncio.shield(self.reply)
        finally:
            self._waiting -= 1


class Ledger:
    """Runs numbered requests in order and keeps their replies for as long as a client may
    send them again.

    Args:
        next_sequence: the first number expected.
    """

    def __init__(self, next_sequence: int = 0) -> None:
        self.next_sequence = next_sequence
        self._entries: OrderedDict[int, Numbered] = OrderedDict()
        self._kept_bytes = 0
        self._turns: set[asyncio.Future[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def once(
        self, sequence: int, body: bytes, carry_out: Callable[[Numbered], Awaitable[bytes]]
    ) -> bytes:
        """The reply to a request: carried out when its turn comes, or the stored one.

        Cancelling the caller (a client that went away) does not stop what has begun, but the
        request is no longer `wanted` then, so that what has not begun can be left.

        Raises:
            SequenceConflict: the number was used with another body, or its reply is gone.
            SequenceGap: requests before it did not come in time.
        """
        digest = hashlib.blake2b(body, digest_size=16).digest()
        entry = self._entries.get(sequence)
        if entry is not None:
            if entry.digest != digest:
                raise SequenceConflict(
                    f"sequence {sequence} was used before with another body", field="sequence"
                )
            return await entry.answer()
        if sequence < self.next_sequence:
            raise SequenceConflict(
                f"sequence {sequence} is past; the next one is {self.next_sequence} and its "
                f"reply is no longer kept",
                field="sequence",
            )
        if sequence >= self.next_sequence + MAX_WINDOW:
            raise SequenceGap(
                f"sequence {sequence} is more than {MAX_WINDOW} past the next one, "
                f"{self.next_sequence}",
                field="sequence",
            )
        entry = self._entries[sequence] = Numbered(digest)
        if sequence == self.next_sequence:
            self._look_again()
        task = asyncio.create_task(self._carry_out(sequence, entry, carry_out))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await entry.answer()

    async def _carry_out(
        self,
        sequence: int,
        entry: Numbered,
        carry_out: Callable[[Numbered], Awaitable[bytes]],
    ) -> None:
        try:
            await self._wait_for_turn(sequence)
            reply = await carry_out(entry)
        except BaseException as error:
            # Nothing took effect, so the number stays free for a corrected request.
            self._entries.pop(sequence, None)
            self._look_again()
            if not entry.reply.done():
                entry.reply.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        self.next_sequence = sequence + 1
        if not entry.reply.done():
            entry.reply.set_result(reply)
        self._kept_bytes += len(reply)
        while (first := next(iter(self._entries))) < sequence and (
            len(self._entries) > MAX_WINDOW or self._kept_bytes > KEPT_BYTES
        ):
            self._kept_bytes -= len(self._entries.pop(first).reply.result())
        self._look_again()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # What it raised was told to whoever waits for the reply.
        _ = task.cancelled() or task.exception()

    def _look_again(self) -> None:
        """Wake those who wait for their turn."""
        for turn in self._turns:
            if not turn.done():
                turn.set_result(None)

    async def _wait_for_turn(self, sequence: int) -> None:
        """Wait while those before it are carried out, but not for long for one that did not
        come.

        Raises:
            SequenceGap: a number before it is missing.
        """
        while sequence != self.next_sequence:
            missing = self.next_sequence not in self._entries
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.add(turn)
            try:
                async with asyncio.timeout(GAP_SECONDS if missing else None):
                    await turn
            except TimeoutError:
                raise SequenceGap(
                    f"sequence {sequence} waited {GAP_SECONDS:g} s for {self.next_sequence}",
                    field="sequence",
                ) from None
            finally:
                self._turns.discard(turn)
