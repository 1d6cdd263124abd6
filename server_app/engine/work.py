"""What the engine thread is given to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch

from edge_sdk.errors import CosdError
from edge_sdk.wire import Finish, Verdict, Verify
from server_app.engine.session import Session
from server_app.methods.base import Proposal, Settlement
from server_app.methods.rows import Rows
from server_app.target.model import Chunk, Screen, TargetModel


def _always() -> bool:
    return True


class Work(ABC):
    """Tokens of one session to be fed, and what to do with their logits. Runs on the engine
    thread.

    Until `judge` begins, the session's text does not change for good: `undo` takes back what
    was prepared, so that a work can be dropped between two passes.

    Args:
        wanted: whether somebody still waits for it; asked before every step.

    Attributes:
        done: nothing is left to do.
        error: what it failed on.
        spoiled: it failed after the session had begun to change.
    """

    def __init__(self, session: Session, wanted: Callable[[], bool] = _always) -> None:
        self.session = session
        self.wanted = wanted
        self.begun = False
        self.done = False
        self.error: CosdError | None = None
        self.spoiled = False

    @abstractmethod
    def left(self) -> int:
        """Tokens that are still to be fed."""

    @abstractmethod
    def chunk(self, target: TargetModel, budget: int) -> Chunk | None:
        """The next tokens to feed, at most `budget` of them unless logits are wanted; None if
        there is nothing to feed. May be asked for again if the pass did not happen."""

    def rows(self, target: TargetModel, logits: torch.Tensor) -> Rows | None:
        """Laws of the logits [rows, V] of the last chunk; None if they are not asked for."""
        return None

    @abstractmethod
    def judge(self, target: TargetModel, rows: Rows | None) -> None:
        """Use the rows of the last chunk. Sets `done` after the last one."""

    def settle(self, target: TargetModel) -> None:
        """Take the cache back to the text, once judged."""
        return

    def undo(self, target: TargetModel) -> None:
        """Leave the session as it was before the first chunk, but for a longer cache."""
        return

    def fail(self, error: CosdError) -> None:
        self.error = error


def _missing(session: Session, target: TargetModel, tokens: int) -> list[int]:
    """Ids of prompt and text up to `tokens` that the cache does not hold."""
    sequence = session.cache(target)
    if sequence.length > tokens:
        target.rollback(sequence, tokens)
    return session.tokens_from(sequence.length, tokens)


class Prefill(Work):
    """Fill the cache with all but the last token of prompt and text."""

    def left(self) -> int:
        return max(0, self.session.length - 1 - self.session.cached)

    def chunk(self, target: TargetModel, budget: int) -> Chunk | None:
        missing = _missing(self.session, target, self.session.length - 1)
        if not missing:
            return None
        return Chunk(self.session.cache(target), missing[: max(budget, 1)], 0)

    def judge(self, target: TargetModel, rows: Rows | None) -> None:
        self.done = self.left() == 0


class VerifyWork(Work):
    """Verify one block and settle one more token.

    Attributes:
        verdict: the outcome, once done.
        full: the block was accepted whole and the text goes on.
        examined: drafted tokens that were looked at.
        drafted: tokens of the block.
    """

    def __init__(
        self,
        session: Session,
        verify: Verify,
        proposal: Proposal,
        kept: Sequence[int] = (),
        *,
        wanted: Callable[[], bool] = _always,
    ) -> None:
        super().__init__(session, wanted)
        self._verify = verify
        self._kept = kept
        self._proposal = proposal
        self._tokens: Sequence[int] = ()
        self._before = 0
        self._last_chunk = False
        self.verdict: Verdict | None = None
        self.full = False
        self.examined = 0

    @property
    def drafted(self) -> int:
        return len(self._proposal.tokens)

    def left(self) -> int:
        session = self.session
        new = 0 if self.begun else (self._verify.settled is not None) + len(self._kept)
        return max(1, session.length + new - session.cached) + len(self._proposal.tokens)

    def chunk(self, target: TargetModel, budget: int) -> Chunk | None:
        session = self.session
        if not self.begun:
            self._start(target)
        if session.finish(target) != Finish.NONE:
            self._last_chunk = True
            return None
        missing = _missing(session, target, session.length - 1)
        missing.append(session.last_token)
        self._last_chunk = len(missing) <= max(budget, 1)
        if not self._last_chunk:
            return Chunk(session.cache(target), missing[:budget], 0)
        rows = len(self._tokens) + (0 if self._verify.more and self._tokens else 1)
        fed = [*missing, *self._tokens]
        if self._verify.more and self._tokens:
            # Without a bonus the law after the last draft is not asked for.
            fed.pop()
        return Chunk(session.cache(target), fed, rows, self._screen())

    def _screen(self) -> Screen | None:
        session, tokens = self.session, self._tokens
        sampling = session.generation.sampling
        if not tokens or sampling.truncates or sampling.repetition_penalty != 1:
            return None
        bounds = session.half.refused_up_to(self._proposal, position=len(session.generated))
        if bounds is None:
            return None
        return Screen(tokens, bounds[: len(tokens)], sampling.temperature)

    def _start(self, target: TargetModel) -> None:
        session = self.session
        self._before = len(session.generated)
        self.begun = True
        if self._verify.settled is not None:
            session.commit(self._verify.settled)
        for token in self._kept:
            session.commit(token)
        if session.finish(target) == Finish.NONE:
            self._tokens = self._proposal.tokens[: session.room(target.context)]

    def settle(self, target: TargetModel) -> None:
        if self.done:
            self.session.trim_cache(target, self.session.length - 1)

    def undo(self, target: TargetModel) -> None:
        if self.begun and not self.done:
            self.begun = False
            del self.session.generated[self._before :]
            self.session.trim_cache(target, self.session.length)

    def rows(self, target: TargetModel, logits: torch.Tensor) -> Rows | None:
        if not self._last_chunk:
            return None
        session = self.session
        sampling = session.generation.sampling
        return Rows(
            logits,
            sampling,
            target.masked,
            seen=session.tokens_from(0, session.length) if sampling.repetition_penalty != 1 else (),
            drafted=self._tokens,
        )

    def judge(self, target: TargetModel, rows: Rows | None) -> None:
        if not self._last_chunk:
            return
        session, half = self.session, self.session.half
        self.spoiled = True
        half.forget()
        session.asked = 0
        base = len(session.generated)
        accepted = 0
        settlement = Settlement()
        if rows is not None:
            accepted = self._accepted(target, rows)
            if session.finish(target) == Finish.NONE:
                settlement = self._settlement(rows, accepted, base + accepted)
        if settlement.token is not None:
            session.commit(settlement.token)
        session.awaits_device = settlement.rejection is not None
        finish = session.finish(target)
        # A block cut short by the end of the text cannot be the parent of another.
        self.full = accepted == len(self._proposal.tokens) and finish == Finish.NONE
        refused = accepted < len(self._tokens) and settlement != Settlement()
        self.examined = accepted + refused
        self.verdict = Verdict(
            sequence=self._verify.sequence,
            accepted=accepted,
            settled=settlement.token,
            finish=int(finish),
            rejection=settlement.rejection,
            state=half.state,
            nll=half.take_nll(),
        )
        self.done = True
        self.spoiled = False

    def _accepted(self, target: TargetModel, rows: Rows) -> int:
        """Commit the accepted drafts; returns how many there are."""
        session, half = self.session, self.session.half
        base = len(session.generated)
        for index, token in enumerate(self._tokens):
            if not half.accepts(rows, index, self._proposal, position=base + index):
                return index
            session.commit(token)
            if session.finish(target) != Finish.NONE:
                return index + 1
        return len(self._tokens)

    def _settlement(self, rows: Rows, accepted: int, position: int) -> Settlement:
        session, half = self.session, self.session.half
        if accepted < len(self._tokens):
            if session.pair is None:
                raise ValueError("drafted tokens without a pair")
            return half.reject(rows, accepted, self._proposal, session.pair, position=position)
        if self._verify.more and self._tokens:
            return Settlement()
        return Settlement(token=half.settle(rows, accepted, position=position))
