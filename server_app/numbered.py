"""The numbered requests of a session: verify, ask, truncate, extend. Each takes effect once and
in order (`server_app.engine.ledger`)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from edge_sdk.decoding.registry import method_named
from edge_sdk.errors import BaseMismatch, InvalidRequest, ServerFault
from edge_sdk.wire import (
    Answer,
    Ask,
    Extend,
    Extended,
    Generation,
    Truncate,
    Truncated,
    Verdict,
    Verify,
    encode,
)
from server_app.engine.admission import admit, carried_out
from server_app.engine.engine import Engine
from server_app.engine.ledger import Numbered
from server_app.engine.store import Held
from server_app.engine.work import VerifyWork
from server_app.methods.base import ServerHalf
from server_app.observability.facts import current_facts
from server_app.prompt_ids import PromptReader

CarryOut = Callable[[Numbered], Awaitable[bytes]]


class NumberedRequests:
    """Carries numbered requests out on sessions that are held.

    Args:
        run: carries out a verify of a session, or closes the session and raises.
        still_here: raises `SessionLost` if the session was closed meanwhile.
        half: the server half of a generation.
        prompts: reads the prompts of further turns.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        run: Callable[[Held, VerifyWork], Awaitable[None]],
        still_here: Callable[[Held], None],
        half: Callable[[Generation], ServerHalf],
        prompts: PromptReader,
    ) -> None:
        self._engine = engine
        self._target = engine.target
        self._run = run
        self._still_here = still_here
        self._half = half
        self._prompts = prompts

    async def verify(self, held: Held, message: Verify, body: bytes) -> tuple[bytes, float]:
        """Returns the verdict and the seconds the server spent on it.

        Raises:
            SequenceConflict, SequenceGap, BaseMismatch, InvalidRequest: see `admit` and `Ledger`.
        """
        session = held.session
        if not method_named(session.generation.method).drafts:
            raise InvalidRequest(
                f"the session's method {session.generation.method!r} verifies no drafts; ask for "
                f"its stream",
                field="method",
            )
        spent = 0.0

        async def carry_out(numbered: Numbered) -> bytes:
            nonlocal spent
            begin = time.perf_counter()
            work = admit(session, message, self._target, wanted=numbered.wanted)
            if isinstance(work, Verdict):
                carried_out(session, message, None)
                self._engine.observer.stale(session.generation.method)
                return encode(work)
            await self._run(held, work)
            carried_out(session, message, work)
            if work.verdict is None:
                raise ServerFault("the engine returned without a verdict")
            spent = time.perf_counter() - begin
            verdict = work.verdict
            current_facts().tokens += verdict.accepted + (verdict.settled is not None)
            return encode(verdict)

        reply = await self._once(held, message.sequence, body, carry_out)
        return reply, spent

    async def ask(self, held: Held, message: Ask, body: bytes) -> bytes:
        """Raises:
        SequenceConflict, SequenceGap: see `Ledger`.
        BaseMismatch: no position waits for that block.
        """

        async def carry_out(numbered: Numbered) -> bytes:
            session = held.session
            if not session.awaits_device:
                raise BaseMismatch("no rejected position waits for the device", field="block")
            if message.block != session.asked + 1:
                raise BaseMismatch(
                    f"block is {message.block}, the next one is {session.asked + 1}", field="block"
                )
            data = await self._engine.call(lambda: session.half.more(message.block))
            session.asked = message.block
            return encode(Answer(message.sequence, data))

        return await self._once(held, message.sequence, body, carry_out)

    async def truncate(self, held: Held, message: Truncate, body: bytes) -> bytes:
        """Raises:
        SequenceConflict, SequenceGap: see `Ledger`.
        BaseMismatch: the text is shorter than that.
        """

        async def carry_out(numbered: Numbered) -> bytes:
            session = held.session
            if message.length > len(session.generated):
                raise BaseMismatch(
                    f"length is {message.length}, but the text has {len(session.generated)} tokens",
                    field="length",
                )
            session.truncate(message.length)
            await self._engine.trim(session, session.length - 1)
            return encode(Truncated(length=message.length))

        return await self._once(held, message.sequence, body, carry_out)

    async def extend(
        self, held: Held, message: Extend, body: bytes, prefill: Callable[[Held], None]
    ) -> bytes:
        """Raises: as `Host.open` and `Ledger`."""

        async def carry_out(numbered: Numbered) -> bytes:
            session = held.session
            if session.generated and message.generation.seed == session.generation.seed:
                raise InvalidRequest(
                    "the seed is the one of the text before; its coins are used up, take another",
                    field="generation.seed",
                )
            half = self._half(message.generation)
            ids = await self._prompts.ids(message.prompt, session.owner)
            reused = await self._engine.extend(session, ids, message.generation, half)
            prefill(held)
            return encode(Extended(prompt_tokens=len(ids), reused=reused))

        return await self._once(held, message.sequence, body, carry_out)

    async def _once(self, held: Held, sequence: int, body: bytes, carry_out: CarryOut) -> bytes:
        """Carry a request out in its turn; it ends the session's stream and waits for the token
        under way."""

        async def alone(numbered: Numbered) -> bytes:
            held.stream += 1
            async with held.turn:
                self._still_here(held)
                return await carry_out(numbered)

        with held.in_use():
            return await held.ledger.once(sequence, body, alone)
