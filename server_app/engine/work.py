"""What the engine thread is given to do."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from edge_sdk.wire import Finish, Verdict, Verify
from server_app.engine.session import Session
from server_app.methods.base import Proposal, Settlement
from server_app.methods.rows import Rows
from server_app.target.model import Chunk, TargetModel


class Work(ABC):
    """Tokens of one session to be fed, and what to do with their logits.

    Runs on the engine thread. `chunk` is asked for until `done`; after each pass `take`
    gets that chunk's logits.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.started = False
        self.done = False

    @abstractmethod
    def chunk(self, target: TargetModel, budget: int) -> Chunk:
        """The next tokens to feed, at most `budget` of them unless logits are wanted."""

    @abstractmethod
    def take(self, target: TargetModel, logits: torch.Tensor) -> None:
        """Use the logits [rows, V] of the last chunk."""


def _missing(session: Session, target: TargetModel, tokens: int) -> list[int]:
    """Ids of prompt and text up to `tokens` that the cache does not hold."""
    sequence = session.cache(target)
    if sequence.length > tokens:
        target.rollback(sequence, tokens)
    return session.tokens_from(sequence.length, tokens)


class Prefill(Work):
    """Fill the cache with all but the last token of prompt and text."""

    def chunk(self, target: TargetModel, budget: int) -> Chunk:
        self.started = True
        missing = _missing(self.session, target, self.session.length - 1)
        self.done = len(missing) <= budget
        return Chunk(self.session.cache(target), missing[:budget], 0)

    def take(self, target: TargetModel, logits: torch.Tensor) -> None:
        return None


class VerifyWork(Work):
    """Verify one block and settle one more token."""

    def __init__(
        self, session: Session, verify: Verify, proposal: Proposal, kept: Sequence[int] = ()
    ) -> None:
        super().__init__(session)
        self._verify = verify
        self._kept = kept
        self._proposal = proposal
        self._tokens: Sequence[int] = ()
        self.verdict: Verdict | None = None
        self.full = False
        self.seconds = 0.0
        self._begin = 0.0

    def chunk(self, target: TargetModel, budget: int) -> Chunk:
        session = self.session
        if not self.started:
            self.started = True
            self._begin = time.perf_counter()
            session.half.forget()
            session.asked = 0
            if self._verify.settled is not None:
                session.commit(self._verify.settled)
            for token in self._kept:
                session.commit(token)
            if session.finish(target) == Finish.NONE:
                self._tokens = self._proposal.tokens[: session.room(target.context)]
        missing = _missing(session, target, session.length - 1)
        missing.append(session.last_token)
        if len(missing) > max(budget, 1):
            return Chunk(session.cache(target), missing[:budget], 0)
        self.done = True
        rows = len(self._tokens) + (0 if self._verify.more and self._tokens else 1)
        fed = [*missing, *self._tokens]
        if self._verify.more and self._tokens:
            # Without a bonus the law after the last draft is not asked for.
            fed.pop()
        return Chunk(session.cache(target), fed, rows)

    def take(self, target: TargetModel, logits: torch.Tensor) -> None:
        if not self.done:
            return
        session, half = self.session, self.session.half
        sampling = session.generation.sampling
        rows = Rows(
            logits,
            sampling,
            session.masked(target),
            seen=session.tokens_from(0, session.length) if sampling.repetition_penalty != 1 else (),
            drafted=self._tokens,
        )
        base = len(session.generated)
        accepted = 0
        for index, token in enumerate(self._tokens):
            if not half.accepts(rows, index, self._proposal, position=base + index):
                break
            accepted += 1
            session.commit(token)
            if session.finish(target) != Finish.NONE:
                break
        settlement = Settlement()
        if session.finish(target) == Finish.NONE:
            position = base + accepted
            if accepted < len(self._tokens):
                pair = session.pair
                if pair is None:
                    raise ValueError("drafted tokens without a pair")
                settlement = half.reject(rows, accepted, self._proposal, pair, position=position)
            elif not (self._verify.more and self._tokens):
                settlement = Settlement(token=half.settle(rows, accepted, position=position))
            if settlement.token is not None:
                session.commit(settlement.token)
        session.awaits_device = settlement.rejection is not None
        # A block cut short by the end of the text cannot be the parent of another.
        self.full = accepted == len(self._proposal.tokens) and session.finish(target) == Finish.NONE
        self.verdict = Verdict(
            sequence=self._verify.sequence,
            accepted=accepted,
            settled=settlement.token,
            finish=int(session.finish(target)),
            rejection=settlement.rejection,
            state=half.state,
            nll=half.take_nll(),
        )
        held = session.length - 1
        if session.cache(target).length > held:
            target.rollback(session.cache(target), held)
        self.seconds = time.perf_counter() - self._begin
