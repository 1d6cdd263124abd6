"""A text that the device drafts and the server verifies: `Rounds` with waiting and the wire."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from edge_sdk.adapt import Plan
from edge_sdk.connection import Connection
from edge_sdk.decoding.coins import PrfCoins, Side
from edge_sdk.decoding.method import DeviceContext
from edge_sdk.errors import InvalidRequest, SessionLost
from edge_sdk.session import MAX_REOPENS, Request, Session
from edge_sdk.stats import Stats
from edge_sdk.text.blocks import Block, Outcome
from edge_sdk.text.flight import Flight
from edge_sdk.text.learning import confidences, learn
from edge_sdk.text.meter import Meter
from edge_sdk.text.rounds import Rounds
from edge_sdk.text.server_alone import stretch_alone
from edge_sdk.text.tokens import Token
from edge_sdk.wire import Finish

_CANCEL_SECONDS: Final = 0.01  # between two tries to stop a pass of the draft

# Blocks in which tokens are sent that were drawn while the link was down.
_CATCH_UP_GAMMA: Final = 8
_CATCH_UP_WINDOW: Final = 4

T = TypeVar("T")


class DraftedText:
    """One text over the client's draft model, which must be free.

    Args:
        cancelled: set to stop drafting between two tokens.
    """

    def __init__(
        self,
        client: Connection,
        request: Request,
        session: Session,
        stats: Stats,
        cancelled: threading.Event,
    ) -> None:
        self._client = client
        self._request = request
        self._session = session
        self._cancelled = cancelled
        self._lost_asking = 0
        self._shown = 0  # length of the text with what was shown before it was verified
        self.stats = stats
        alignment, generation = client.alignment, request.generation
        self._follower = client.follower
        half = request.method.device_half(
            DeviceContext(
                target_ids=alignment.target_ids,
                target_size=len(client.vocabulary),
                sampling=generation.sampling,
                coins=PrfCoins(seed=generation.seed, side=Side.DEVICE),
                seed=generation.seed,
                token_keys=client.common_keys,
            )
        )
        self._rounds = Rounds(
            half=half,
            follower=self._follower,
            alignment=alignment,
            target=client.vocabulary,
            max_tokens=generation.max_tokens,
            keeps_sure=request.method.keeps_sure,
        )
        self._flight = Flight(session, self._rounds)
        self._control = request.control
        self._meter = Meter(stats, request.on_round)
        stats.common_vocabulary = len(alignment)

    async def tokens(self) -> AsyncGenerator[tuple[Sequence[Token], Finish], None]:
        """Tokens as they become certain, and why the text is complete."""
        begin = time.perf_counter()
        await self._session.open()
        self._rounds.room = self._session.room
        self._rounds.next_sequence = self._session.next_sequence
        await self._in_thread(self._begin_draft)
        self.stats.open_seconds = time.perf_counter() - begin
        self._meter.begin()
        try:
            async with contextlib.aclosing(self._outcomes()) as outcomes:
                async for outcome in outcomes:
                    self._meter.mark()
                    yield outcome.tokens, outcome.finish
        finally:
            rounds, under_way = self._rounds, self._flight.release()
            known = not rounds.asking and rounds.in_flight == len(under_way)
            await self._session.leave(under_way, rounds.next_sequence if known else None)

    async def _outcomes(self) -> AsyncGenerator[Outcome, None]:
        rounds, flight = self._rounds, self._flight
        while True:
            if not len(flight) and (sure := await self._sure()) is not None:
                yield sure
                continue
            if rounds.may_follow and rounds.left > 0:
                plan = self._plan()
                if not plan.speculate and not len(flight):
                    async for outcome in self._stretch(plan):
                        yield outcome
                    continue
                window = max(plan.window, _CATCH_UP_WINDOW) if rounds.ahead else plan.window
                if plan.speculate and rounds.live < window:
                    block = await self._block(plan)
                    if block is not None:
                        flight.send(block)
                        if not flight.ready:
                            continue
                    elif self._cancelled.is_set() or not len(flight):
                        self._check_open()
                        return
            async for outcome in self._drawn_ahead():
                yield outcome
            waiting = time.perf_counter()
            answered = await flight.oldest()
            if answered is None:
                continue
            self._meter.verdict(waiting, answered)
            begin = time.perf_counter()
            outcome = rounds.receive(answered.verdict)
            if not rounds.unverified():
                self._shown = 0
            self.stats.round_seconds += answered.seconds
            self._count(outcome)
            self._meter.judged(answered, outcome)
            learn(self._control, answered, outcome, time.perf_counter() - begin)
            while outcome.asking:
                if outcome.tokens:
                    yield outcome
                outcome = await self._more()
            self._lost_asking = 0
            self._meter.settled(outcome)
            if not outcome.stale:
                yield outcome

    def _plan(self) -> Plan:
        remaining = self._rounds.left
        if not self._rounds.ahead and self._request.adaptive and not self._follower.room:
            return Plan(speculate=False, tokens=remaining)
        plan = self._control.plan(remaining=remaining)
        if self._rounds.ahead:
            # A token once drawn is sent, whatever would be faster.
            return replace(plan, speculate=True, gamma=max(plan.gamma, _CATCH_UP_GAMMA))
        return plan

    @property
    def unverified(self) -> Sequence[Token]:
        """Tokens that were shown before the server has judged them."""
        count = self._shown - len(self._rounds.generated)
        return self._rounds.unverified()[:count] if count > 0 else ()

    async def _drawn_ahead(self) -> AsyncGenerator[Outcome, None]:
        """While the link is down, and if that is wanted, go on with the draft alone."""
        rounds, outage = self._rounds, self._client.outage
        while outage.policy == "draft" and not await self._flight.ready_before(outage.begun()):
            begin = time.perf_counter()
            drawn = await self._in_thread(rounds.draw_ahead)
            self._meter.drafted(begin)
            if not drawn and self._shown:
                return
            self._shown = len(rounds.generated) + len(rounds.unverified())
            yield Outcome()
            if not drawn:
                return

    async def _stretch(self, plan: Plan) -> AsyncGenerator[Outcome, None]:
        """Let the server decode so many tokens alone."""
        rounds = self._rounds
        stream = stretch_alone(
            self._client,
            self._session,
            lambda: rounds.generated,
            most=self._request.generation.max_tokens,
            limit=max(1, min(plan.tokens, rounds.left)),
            settled=rounds.unsent,
            next_sequence=rounds.next_sequence,
            state=rounds.state,
        )
        begin = time.perf_counter()
        first = tokens = 0.0
        metered = self._meter.stretch(
            stream, plan, round_trip=self._client.transport.link.round_trip
        )
        async with contextlib.aclosing(metered) as ids:
            async for token, finish in ids:
                tokens += 1
                first = first or time.perf_counter() - begin
                outcome = rounds.streamed(token)
                self.stats.target_calls += 1
                yield replace(outcome, finish=finish or outcome.finish)
        self._control.streamed(
            tokens=int(tokens), seconds=time.perf_counter() - begin, first_seconds=first
        )

    def _begin_draft(self) -> None:
        prompt, follower = self._request.prompt, self._follower
        text = follower.model.text
        if prompt.messages is not None:
            ids = text.chat(prompt.messages)
        elif prompt.text is not None:
            ids = text.prompt(prompt.text)
        else:
            pieces = self._client.vocabulary.pieces
            ids = text.tail(b"".join(pieces[token] for token in prompt.ids or ()))
        follower.begin(ids)
        if follower.room:
            follower.logits()

    async def _block(self, plan: Plan) -> Block | None:
        """Draft a block; None if it is to be given up, since a verdict that came in meanwhile
        makes it stale, or since the text is."""
        begin = time.perf_counter()
        stale = threading.Event()
        rounds, control = self._rounds, self._control
        room = min(rounds.left, self._follower.room)
        drawn = rounds.ahead
        refusal = asyncio.ensure_future(self._flight.refusal()) if rounds.live else None
        if refusal is not None:
            refusal.add_done_callback(lambda done: None if done.cancelled() else stale.set())
        try:
            block = await self._in_thread(
                lambda: rounds.next_block(
                    plan.gamma,
                    more=plan.more and room > plan.gamma,
                    enough=lambda drafted: control.enough(confidences(drafted)),
                    cancelled=lambda: stale.is_set() or self._cancelled.is_set(),
                )
            )
        finally:
            if refusal is not None:
                refusal.cancel()
        seconds = self._meter.drafted(begin, block, plan)
        if block is not None:
            self.stats.drafted += len(block.drafted)
            fresh = len(block.drafted) - (drawn - rounds.ahead)
            control.drafted(seconds=seconds, tokens=fresh)
        return block

    async def _sure(self) -> Outcome | None:
        if not self._request.method.keeps_sure:
            return None
        begin = time.perf_counter()
        outcome = await self._in_thread(self._rounds.keep_sure)
        self._meter.drafted(begin)
        self.stats.drafted += outcome is not None
        return outcome

    async def _more(self) -> Outcome:
        """Ask until the rejected position is settled, in a new session if this one is lost."""
        rounds = self._rounds
        ask = rounds.ask()
        begin = time.perf_counter()
        try:
            answer, exchange = await self._session.ask(ask)
        except SessionLost:
            self._lost_asking += 1
            if self._lost_asking > MAX_REOPENS:
                raise
            await self._flight.clear()
            block = rounds.rejected_again()
            await self._session.reopen(rounds.generated, block.verify.sequence, rounds.state)
            self._flight.send(block)
            answered = await self._flight.oldest()
            assert answered is not None, "the block may still be accepted"
            self._meter.judged_again(begin, answered)
            outcome = rounds.receive(answered.verdict)
            # Its first token was examined before.
            self._count(replace(outcome, examined=max(0, outcome.examined - 1)))
            return outcome
        self.stats.asks += 1
        self.stats.round_seconds += time.perf_counter() - begin
        self._meter.asked(begin, exchange)
        return rounds.answer(answer)

    def _count(self, outcome: Outcome) -> None:
        self.stats.rounds += 1
        self.stats.examined += outcome.examined
        self.stats.accepted += outcome.accepted
        self.stats.target_calls += not outcome.stale
        if outcome.nll is not None:
            self.stats.target_nll += outcome.nll
            self.stats.nll_tokens += len(outcome.tokens)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Run on the draft's thread. When cancelled, waits until the draft is free again."""
        self._check_open()
        future = asyncio.get_running_loop().run_in_executor(self._client.draft_thread, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._cancelled.set()
            # Again and again, since a long prompt is read in several passes.
            while not future.done():
                self._follower.model.cancel()
                await asyncio.wait([future], timeout=_CANCEL_SECONDS)
            if not future.cancelled():
                future.exception()
            raise

    def _check_open(self) -> None:
        if self._client.closed:
            raise InvalidRequest("the client was closed while a text was being generated")
