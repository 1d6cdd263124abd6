"""A text that the device drafts and the server verifies: `Rounds` with waiting and the wire."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from edge_sdk.blocks import Block, Outcome
from edge_sdk.connection import Connection
from edge_sdk.decoding.coins import PrfCoins, Side
from edge_sdk.decoding.method import DeviceContext
from edge_sdk.errors import InvalidRequest, SessionLost
from edge_sdk.rounds import Rounds
from edge_sdk.session import MAX_REOPENS, Request, Session
from edge_sdk.stats import Stats
from edge_sdk.tokens import Token
from edge_sdk.wire import Finish, Verdict

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
        stats.common_vocabulary = len(alignment)

    async def tokens(self) -> AsyncGenerator[tuple[Sequence[Token], Finish], None]:
        """Tokens as they become certain, and why the text is complete."""
        begin = time.perf_counter()
        await self._session.open()
        self._rounds.room = self._session.room
        await self._in_thread(self._begin_draft)
        start = time.perf_counter()
        self.stats.open_seconds = start - begin
        async for outcome in self._outcomes():
            self.stats.seconds = time.perf_counter() - start
            yield outcome.tokens, outcome.finish

    async def _outcomes(self) -> AsyncGenerator[Outcome, None]:
        while True:
            if (sure := await self._sure()) is not None:
                yield sure
                continue
            block = await self._block()
            if block is None:
                self._check_open()
                return
            outcome = self._rounds.receive(await self._verdict(block))
            self._count(outcome)
            while outcome.asking:
                if outcome.tokens:
                    yield outcome
                outcome = await self._more()
            self._lost_asking = 0
            yield outcome

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

    async def _block(self) -> Block | None:
        begin = time.perf_counter()
        gamma = self._request.gamma
        block = await self._in_thread(
            lambda: self._rounds.next_block(gamma, cancelled=self._cancelled.is_set)
        )
        self.stats.draft_seconds += time.perf_counter() - begin
        if block is not None:
            self.stats.drafted += len(block.drafted)
        return block

    async def _sure(self) -> Outcome | None:
        if not self._request.method.keeps_sure:
            return None
        begin = time.perf_counter()
        outcome = await self._in_thread(self._rounds.keep_sure)
        self.stats.draft_seconds += time.perf_counter() - begin
        self.stats.drafted += outcome is not None
        return outcome

    async def _more(self) -> Outcome:
        """Ask until the rejected position is settled, in a new session if this one is lost."""
        rounds = self._rounds
        ask = rounds.ask()
        begin = time.perf_counter()
        try:
            answer = await self._session.ask(ask)
        except SessionLost:
            self._lost_asking += 1
            if self._lost_asking > MAX_REOPENS:
                raise
            block = rounds.rejected_again()
            await self._session.reopen(rounds.generated, block.verify.sequence, rounds.state)
            outcome = rounds.receive(await self._verdict(block))
            # Its first token was examined before.
            self._count(replace(outcome, examined=max(0, outcome.examined - 1)))
            return outcome
        self.stats.asks += 1
        self.stats.round_seconds += time.perf_counter() - begin
        return rounds.answer(answer)

    def _count(self, outcome: Outcome) -> None:
        self.stats.rounds += 1
        self.stats.examined += outcome.examined
        self.stats.accepted += outcome.accepted
        self.stats.target_calls += not outcome.stale
        if outcome.nll is not None:
            self.stats.target_nll += outcome.nll
            self.stats.nll_tokens += len(outcome.tokens)

    async def _verdict(self, block: Block) -> Verdict:
        rounds = self._rounds
        for _ in range(MAX_REOPENS):
            begin = time.perf_counter()
            try:
                verdict = await self._session.verify(block.verify)
            except SessionLost:
                await self._session.reopen(rounds.generated, block.verify.sequence, rounds.state)
                block = rounds.renewed(block)
                continue
            self.stats.round_seconds += time.perf_counter() - begin
            return verdict
        raise SessionLost(
            f"the server lost the session {MAX_REOPENS} times in a row; is it out of memory?"
        )

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Run on the draft's thread. When cancelled, waits until the draft is free again."""
        self._check_open()
        future = asyncio.get_running_loop().run_in_executor(self._client.draft_thread, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._cancelled.set()
            await asyncio.wait([future])
            raise

    def _check_open(self) -> None:
        if self._client.closed:
            raise InvalidRequest("the client was closed while a text was being generated")
