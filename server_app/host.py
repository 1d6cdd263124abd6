"""The operations of the wire, apart from HTTP: messages in, messages out."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from edge_sdk.decoding.coins import Coins, PrfCoins, Side
from edge_sdk.decoding.noise import token_keys
from edge_sdk.decoding.registry import method_named
from edge_sdk.errors import (
    BaseMismatch,
    CosdError,
    InvalidRequest,
    SequenceConflict,
    ServerFault,
    ServerUnavailable,
    SessionLost,
)
from edge_sdk.vocab.alignment import pair_id, target_ids_from_bitmap
from edge_sdk.wire import (
    PROTOCOL_VERSION,
    Answer,
    Ask,
    Extend,
    Extended,
    Generate,
    Generated,
    Generation,
    Open,
    Opened,
    PairRegistered,
    RegisterPair,
    Truncate,
    Truncated,
    Verdict,
    Verify,
    encode,
)
from edge_sdk.wire.limits import MAX_LAWS_BODY, MAX_ROUND_BODY
from server_app.engine.admission import admit, carried_out, check_tokens
from server_app.engine.engine import Engine
from server_app.engine.ledger import Ledger
from server_app.engine.session import Session
from server_app.engine.store import Held, PairStore, SessionStore
from server_app.engine.work import Prefill, VerifyWork, Work
from server_app.methods.base import Pair, ServerHalf
from server_app.methods.registry import SERVER_HALVES, server_half
from server_app.prompt_ids import prompt_ids, too_long
from server_app.token_stream import TokenStream

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Attributes:
    sessions: most sessions held.
    session_ttl: seconds an unused session is kept.
    pairs: most vocabulary pairs held.
    """

    sessions: int = 256
    session_ttl: float = 1800.0
    pairs: int = 256


class Host:
    """Sessions of all clients over one engine.

    Args:
        engine: runs the works; started by the caller.
        limits: how much is held.
        coins: the server's coins of a seed; tests put enumerating ones here.

    Attributes:
        draining: no new session is opened; those that are open go on.
        closing: streams end now.
    """

    def __init__(
        self,
        engine: Engine,
        limits: HostLimits | None = None,
        *,
        coins: Callable[[int], Coins] | None = None,
    ) -> None:
        limits = limits or HostLimits()
        self._coins = coins or _prf_coins
        self.engine = engine
        self.target = engine.target
        self.draining = False
        self.closing = False
        self._sessions = SessionStore(limit=limits.sessions, ttl=limits.session_ttl)
        self._pairs = PairStore(limit=limits.pairs)
        self._token_keys = token_keys(self.target.vocabulary)
        self.methods = tuple(SERVER_HALVES)

    @property
    def sessions(self) -> int:
        """Sessions held."""
        return len(self._sessions)

    def active_sessions(self, seconds: float) -> int:
        """Sessions with a request in progress, or used in the last `seconds`."""
        return self._sessions.active(seconds)

    def register_pair(self, message: RegisterPair) -> PairRegistered:
        """Take the V_C of a draft.

        Raises:
            InvalidRequest: it is for another vocabulary, or the bitmap does not fit.
        """
        vocabulary = self.target.vocabulary
        if message.target_fingerprint != vocabulary.fingerprint:
            raise InvalidRequest(
                f"the pair is for target vocabulary {message.target_fingerprint[:12]!r}..., but "
                f"this server's is {vocabulary.fingerprint[:12]}...; fetch its byte table again",
                field="target_fingerprint",
            )
        ids = target_ids_from_bitmap(message.bitmap, vocabulary)
        name = pair_id(vocabulary.fingerprint, message.bitmap)
        self._pairs.add(Pair(name, ids))
        return PairRegistered(pair_id=name, size=len(ids))

    async def open(self, owner: str, session_id: str, message: Open, body: bytes) -> bytes:
        """Begin a session, or take up a lost one.

        Raises:
            InvalidRequest, UnknownMethod, EmptyPrompt, PromptTooLong, NoChatTemplate: see the
                message.
            UnknownVocabulary: the pair is not registered.
            SequenceConflict: the id is in use for something else.
            ServerUnavailable: going down, or every session is in use.
        """
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if (reply := self._opened_before(owner, session_id, digest)) is not None:
            return reply
        if self.draining:
            raise ServerUnavailable("the server is going down; try again shortly", retry_after=1.0)
        if message.protocol != PROTOCOL_VERSION:
            raise InvalidRequest(
                f"protocol {message.protocol} is not spoken here; this server speaks "
                f"{PROTOCOL_VERSION}",
                field="protocol",
            )
        pair = None if message.pair_id is None else self._pairs.get(message.pair_id)
        half = self._half(message.generation)
        check_tokens(message.generated, self.target, "generated")
        ids = await prompt_ids(message.prompt, self.target)
        if message.state is not None:
            half.resume(message.state)
        session = Session(
            prompt_ids=ids,
            generation=message.generation,
            half=half,
            pair=pair,
            generated=message.generated,
        )
        if session.length > self.target.context:
            raise too_long(session.length, self.target, "generated")
        if len(message.generated) >= message.generation.max_tokens:
            raise InvalidRequest(
                f"generated has {len(message.generated)} tokens, which is all that max_tokens "
                f"{message.generation.max_tokens} allows; the text is complete",
                field="generated",
            )
        # Another request for the same id may have come while the prompt was read.
        if (reply := self._opened_before(owner, session_id, digest)) is not None:
            return reply
        reply = encode(Opened(prompt_tokens=len(ids), context=self.target.context))
        held = Held(session, Ledger(message.next_sequence), digest, reply)
        for evicted in self._sessions.add(owner, session_id, held):
            self._release(evicted.session)
        self._prefill(session)
        return reply

    async def verify(
        self, owner: str, session_id: str, message: Verify, body: bytes
    ) -> tuple[bytes, float]:
        """Verify a block. Returns the verdict and the seconds the server spent on it.

        Raises:
            SessionLost, SequenceConflict, SequenceGap, BaseMismatch, InvalidRequest: see
                `admit` and `Ledger`.
        """
        held = self._sessions.get(owner, session_id)
        if not method_named(held.session.generation.method).drafts:
            raise InvalidRequest(
                f"the session's method {held.session.generation.method!r} verifies no drafts; "
                f"ask for its stream",
                field="method",
            )
        spent = 0.0

        async def carry_out() -> bytes:
            nonlocal spent
            self._still_here(owner, session_id, held)
            begin = time.perf_counter()
            work = admit(held.session, message, self.target)
            if isinstance(work, Verdict):
                carried_out(held.session, message, None)
                return encode(work)
            await self._run(owner, session_id, work)
            carried_out(held.session, message, work)
            if work.verdict is None:
                raise ServerFault("the engine returned without a verdict")
            spent = time.perf_counter() - begin
            return encode(work.verdict)

        with held.in_use():
            return await held.ledger.once(message.sequence, body, carry_out), spent

    async def ask(self, owner: str, session_id: str, message: Ask, body: bytes) -> bytes:
        """Give more to settle the rejected position with.

        Raises:
            SessionLost, SequenceConflict, SequenceGap: see `Ledger`.
            BaseMismatch: no position waits for that block.
        """
        held = self._sessions.get(owner, session_id)

        async def carry_out() -> bytes:
            self._still_here(owner, session_id, held)
            session = held.session
            if not session.awaits_device:
                raise BaseMismatch("no rejected position waits for the device", field="block")
            if message.block != session.asked + 1:
                raise BaseMismatch(
                    f"block is {message.block}, the next one is {session.asked + 1}", field="block"
                )
            data = await self.engine.call(lambda: session.half.more(message.block))
            session.asked = message.block
            return encode(Answer(message.sequence, data))

        with held.in_use():
            return await held.ledger.once(message.sequence, body, carry_out)

    def round_limit(self, owner: str, session_id: str) -> int:
        """Most bytes of a verify of this session."""
        held = self._sessions.find(owner, session_id)
        carries = held is not None and held.session.half.carries_laws
        return MAX_LAWS_BODY if carries else MAX_ROUND_BODY

    async def truncate(self, owner: str, session_id: str, message: Truncate, body: bytes) -> bytes:
        """Cut the text; what stays is warm.

        Raises:
            SessionLost, SequenceConflict, SequenceGap: see `Ledger`.
            BaseMismatch: the text is shorter than that.
        """
        held = self._sessions.get(owner, session_id)

        async def carry_out() -> bytes:
            self._still_here(owner, session_id, held)
            session = held.session
            if message.length > len(session.generated):
                raise BaseMismatch(
                    f"length is {message.length}, but the text has {len(session.generated)} tokens",
                    field="length",
                )
            session.truncate(message.length)
            await self._trim(session, session.length - 1)
            return encode(Truncated(length=message.length))

        with held.in_use():
            return await held.ledger.once(message.sequence, body, _alone(held, carry_out))

    async def extend(self, owner: str, session_id: str, message: Extend, body: bytes) -> bytes:
        """Take the next prompt in full, e.g. a chat with one more turn.

        Raises: as `open` and `Ledger`.
        """
        held = self._sessions.get(owner, session_id)

        async def carry_out() -> bytes:
            self._still_here(owner, session_id, held)
            session = held.session
            if session.generated and message.generation.seed == session.generation.seed:
                raise InvalidRequest(
                    "the seed is the one of the text before; its coins are used up, take another",
                    field="generation.seed",
                )
            half = self._half(message.generation)
            ids = await prompt_ids(message.prompt, self.target)
            shared = session.extend(ids, message.generation, half)
            reused = await self._trim(session, min(shared, session.length - 1))
            self._prefill(session)
            return encode(Extended(prompt_tokens=len(ids), reused=reused))

        with held.in_use():
            return await held.ledger.once(message.sequence, body, _alone(held, carry_out))

    def generate(
        self, owner: str, session_id: str, message: Generate
    ) -> AsyncGenerator[Generated, None]:
        """Decode on the server alone, token by token, from `base` on; see `TokenStream`.

        Raises:
            SessionLost: no such session.
            InvalidRequest, BaseMismatch: see `TokenStream`.
        """
        held = self._sessions.get(owner, session_id)

        async def run(work: VerifyWork) -> None:
            await self._run(owner, session_id, work)

        stream = TokenStream(held, message.base, self.target, run=run, closing=lambda: self.closing)
        return stream.tokens()

    async def close(self, owner: str, session_id: str) -> None:
        """Forget a session; one that is not there is closed already."""
        held = self._sessions.pop(owner, session_id)
        if held is not None:
            self._release(held.session)

    def sweep(self) -> None:
        """Drop sessions past their time."""
        for held in self._sessions.expire():
            self._release(held.session)

    def _opened_before(self, owner: str, session_id: str, digest: bytes) -> bytes | None:
        held = self._sessions.find(owner, session_id)
        if held is None:
            return None
        if held.open_digest != digest:
            raise SequenceConflict("the session id is in use; choose another")
        return held.reply

    def _half(self, generation: Generation) -> ServerHalf:
        return server_half(generation, self._token_keys, self._coins(generation.seed))

    def _still_here(self, owner: str, session_id: str, held: Held) -> None:
        if self._sessions.find(owner, session_id) is not held:
            raise SessionLost("the session is not here (any more); open it again")

    async def _run(self, owner: str, session_id: str, work: Work) -> None:
        try:
            await self.engine.run(work)
        except CosdError:
            if work.started:
                # It may have half happened. The client opens the session again with the
                # tokens it knows, which is always right.
                await self.close(owner, session_id)
            raise

    def _prefill(self, session: Session) -> None:
        if session.length > 1:
            task = asyncio.ensure_future(self.engine.run(Prefill(session)))
            # The first verify computes whatever is missing and reports what goes wrong.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _trim(self, session: Session, length: int) -> int:
        """Drop cached tokens past `length`; returns how many are left."""
        left: int = await self.engine.call(lambda: session.trim_cache(self.target, length))
        return left

    def _release(self, session: Session) -> None:
        self.engine.post(lambda: session.close(self.target))


def _prf_coins(seed: int) -> Coins:
    return PrfCoins(seed=seed, side=Side.SERVER)


def _alone(held: Held, carry_out: Callable[[], Awaitable[bytes]]) -> Callable[[], Awaitable[bytes]]:
    """A request that ends the session's stream and waits for the token under way."""

    async def in_turn() -> bytes:
        held.stream += 1
        async with held.turn:
            return await carry_out()

    return in_turn
