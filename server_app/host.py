"""The operations of the wire, apart from HTTP: messages in, messages out."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from edge_sdk.decoding.coins import Coins
from edge_sdk.errors import (
    CosdError,
    SequenceConflict,
    ServerAway,
    ServerFault,
    ServerUnavailable,
    SessionLost,
)
from edge_sdk.wire import (
    Ask,
    Extend,
    Generate,
    Generated,
    Open,
    Opened,
    PairRegistered,
    Prompt,
    RegisterPair,
    Truncate,
    Verify,
    encode,
)
from edge_sdk.wire.limits import MAX_LAWS_BODY, MAX_ROUND_BODY
from server_app.engine.engine import NEW_TEXTS, Engine
from server_app.engine.ledger import Ledger
from server_app.engine.store import Held, SessionStore
from server_app.engine.work import Prefill, VerifyWork
from server_app.methods.registry import SERVER_HALVES
from server_app.numbered import NumberedRequests
from server_app.opening import Opening
from server_app.pairs import PairStore
from server_app.quotas import KeyLimits, Quotas
from server_app.token_stream import TokenStream

log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 60.0  # a key at its limit gives up a session that was idle for so long


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Attributes:
    sessions: most sessions held.
    session_ttl: seconds an unused session is kept.
    pairs: most vocabulary pairs held.
    key: what each key may use.
    """

    sessions: int = 256
    session_ttl: float = 1800.0
    pairs: int = 256
    key: KeyLimits = field(default_factory=KeyLimits)


class Host:
    """Sessions of all clients over one engine.

    Args:
        engine: runs the works; started by the caller.
        limits: how much is held.
        coins: the server's coins of a seed; tests put enumerating ones here.

    Attributes:
        draining: no new session is opened; those that are open go on.
        closing: streams end now, and nothing is begun any more.
    """

    def __init__(
        self,
        engine: Engine,
        limits: HostLimits | None = None,
        *,
        coins: Callable[[int], Coins] | None = None,
    ) -> None:
        limits = limits or HostLimits()
        self.engine = engine
        self.target = engine.target
        self.draining = False
        self.closing = False
        self.quotas = Quotas(limits.key)
        self._sessions = SessionStore(limit=limits.sessions, ttl=limits.session_ttl)
        self._pairs = PairStore(self.target.vocabulary, limit=limits.pairs)
        self._opening = Opening(self.target, coins=coins)
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbered = NumberedRequests(
            engine,
            run=self._run,
            still_here=self._still_here,
            half=self._opening.half,
            prompts=self._opening.prompts,
        )
        self.methods = tuple(SERVER_HALVES)

    @property
    def sessions(self) -> int:
        """Sessions held."""
        return len(self._sessions)

    def active_sessions(self, seconds: float) -> int:
        """Sessions with a request in progress, or used in the last `seconds`."""
        return self._sessions.active(seconds)

    def held(self) -> list[tuple[str, str]]:
        """Owner and id of every session, the least recently used first."""
        return self._sessions.names()

    async def declare(self, prompts: Sequence[Prompt]) -> None:
        """Compute prompts whose beginnings every key may share, and keep them.

        Raises:
            EmptyPrompt, PromptTooLong, NoChatTemplate: see the message.
            ServerUnavailable: the cache is too small for them.
        """
        for prompt in prompts:
            session = await self._opening.declared(prompt)
            await self.engine.run(Prefill(session))
            await self.engine.pin(session)

    def register_pair(self, message: RegisterPair) -> PairRegistered:
        """Take the V_C of a draft.

        Raises:
            InvalidRequest: it is for another vocabulary, or the bitmap does not fit.
        """
        return self._pairs.register(message)

    async def open(self, owner: str, session_id: str, message: Open, body: bytes) -> bytes:
        """Begin a session, or take up a lost one.

        Raises:
            InvalidRequest, UnknownMethod, EmptyPrompt, PromptTooLong, NoChatTemplate: see the
                message.
            UnknownVocabulary: the pair is not registered.
            SequenceConflict: the id is in use for something else.
            SessionLost: it was closed already; requests may overtake each other.
            RateLimited: the key is over one of its limits.
            ServerAway: going down.
            ServerUnavailable: every session is in use.
        """
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if (reply := self._opened_before(owner, session_id, digest)) is not None:
            return reply
        if self.draining:
            raise ServerAway("the server is going down; try again shortly", retry_after=1.0)
        self.quotas.request(owner, time.monotonic())
        pair = None if message.pair_id is None else self._pairs.get(message.pair_id)
        session = await self._opening.session(owner, message, pair)
        # Another request for the same id may have come while the prompt was read.
        if (reply := self._opened_before(owner, session_id, digest)) is not None:
            return reply
        self.engine.check_room(NEW_TEXTS)
        self._room_for(owner)
        opened = Opened(prompt_tokens=len(session.prompt_ids), context=self.target.context)
        held = Held(session_id, session, Ledger(message.next_sequence), digest, encode(opened))
        self._prefill(held)
        try:
            evicted = self._sessions.add(held)
        except ServerUnavailable:
            self._release(held)
            raise
        if evicted is not None:
            self._evicted(evicted, "limit")
        self.engine.open(session)
        return held.reply

    async def verify(
        self, owner: str, session_id: str, message: Verify, body: bytes
    ) -> tuple[bytes, float]:
        """Verify a block. Returns the verdict and the seconds the server spent on it.

        Cancelled before its step, it costs nothing and its number stays free.

        Raises:
            SessionLost: no such session of this owner.
            RateLimited: the key is over one of its limits.
            ServerAway: going down.
            ServerUnavailable: overloaded.
            SequenceConflict, SequenceGap, BaseMismatch, InvalidRequest: see `NumberedRequests`.
        """
        held = self._held(owner, session_id)
        self.quotas.request(owner, time.monotonic())
        return await self._numbered.verify(held, message, body)

    async def ask(self, owner: str, session_id: str, message: Ask, body: bytes) -> bytes:
        """Give more to settle the rejected position with.

        Raises:
            SessionLost, SequenceConflict, SequenceGap, BaseMismatch: see `NumberedRequests`.
        """
        return await self._numbered.ask(self._held(owner, session_id), message, body)

    def round_limit(self, owner: str, session_id: str) -> int:
        """Most bytes of a verify of this session."""
        held = self._sessions.find(owner, session_id)
        carries = held is not None and held.session.half.carries_laws
        return MAX_LAWS_BODY if carries else MAX_ROUND_BODY

    async def truncate(self, owner: str, session_id: str, message: Truncate, body: bytes) -> bytes:
        """Cut the text; what stays is warm.

        Raises:
            SessionLost, SequenceConflict, SequenceGap, BaseMismatch: see `NumberedRequests`.
        """
        return await self._numbered.truncate(self._held(owner, session_id), message, body)

    async def extend(self, owner: str, session_id: str, message: Extend, body: bytes) -> bytes:
        """Take the next prompt in full, e.g. a chat with one more turn.

        Raises: as `open` and `NumberedRequests`.
        """
        held = self._held(owner, session_id)
        self.quotas.request(owner, time.monotonic())
        return await self._numbered.extend(held, message, body, self._prefill)

    def generate(
        self, owner: str, session_id: str, message: Generate
    ) -> AsyncGenerator[Generated, None]:
        """Decode on the server alone, token by token, from `base` on; see `TokenStream`.

        Raises:
            SessionLost: no such session.
            InvalidRequest, BaseMismatch: see `TokenStream`.
        """
        held = self._held(owner, session_id)

        async def run(work: VerifyWork) -> None:
            self._still_here(held)
            await self._run(held, work)

        stream = TokenStream(held, message, self.target, run=run, closing=lambda: self.closing)
        return stream.tokens()

    async def close(self, owner: str, session_id: str) -> None:
        """Forget a session, also one whose opening is still to come."""
        held = self._sessions.close(owner, session_id)
        if held is not None:
            self._release(held)

    def sweep(self) -> None:
        """Drop sessions past their time."""
        for held in self._sessions.expire():
            self._evicted(held, "ttl")

    def _room_for(self, owner: str) -> None:
        """Raises:
        RateLimited: the key has all the sessions that it may have, and none is idle.
        """
        most = self.quotas.limits.sessions
        while most and self._sessions.count(owner) >= most:
            idle = self._sessions.idle_of(owner, _IDLE_SECONDS)
            if idle is None:
                break
            self._evicted(idle, "limit")
        self.quotas.session(self._sessions.count(owner))

    def _opened_before(self, owner: str, session_id: str, digest: bytes) -> bytes | None:
        held = self._sessions.find(owner, session_id)
        if held is None:
            if self._sessions.was_closed(owner, session_id):
                raise SessionLost("the session was closed already; open one with another id")
            return None
        if held.open_digest != digest:
            raise SequenceConflict("the session id is in use; choose another")
        return held.reply

    def _held(self, owner: str, session_id: str) -> Held:
        """Raises:
        ServerAway: nothing is begun any more.
        SessionLost: no such session of this owner.
        """
        if self.closing:
            raise ServerAway("the server is going down; open the session again", retry_after=1.0)
        return self._sessions.get(owner, session_id)

    def _still_here(self, held: Held) -> None:
        if held.gone:
            raise SessionLost("the session is not here (any more); open it again")

    async def _run(self, held: Held, work: VerifyWork) -> None:
        try:
            with self.quotas.in_flight(held.session.owner, work.left()):
                await self.engine.run(work)
        except CosdError as error:
            if work.spoiled or isinstance(error, ServerFault):
                # It may have half happened. The client opens the session again with the
                # tokens it knows, which is always right.
                self._sessions.discard(held)
                self._release(held)
            raise

    def _prefill(self, held: Held) -> None:
        """Begin to fill the cache, not waiting.

        Raises:
            RateLimited: the key has too many tokens in flight.
        """
        session = held.session
        if session.length < 2:
            return
        counted = self.quotas.in_flight(session.owner, session.length)
        counted.__enter__()
        work = Prefill(session, wanted=lambda: not held.gone)
        task = asyncio.ensure_future(self.engine.run(work))

        def done(task: asyncio.Future[None]) -> None:
            counted.__exit__(None, None, None)
            self._tasks.discard(task)
            # The first verify computes whatever is missing and reports what goes wrong.
            _ = task.cancelled() or task.exception()

        self._tasks.add(task)
        task.add_done_callback(done)

    def _evicted(self, held: Held, reason: str) -> None:
        self.engine.observer.session_evicted(reason)
        self._release(held)

    def _release(self, held: Held) -> None:
        held.gone = True
        self.engine.close(held.session)
