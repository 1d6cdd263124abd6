"""The device's side of a text, without I/O: blocks go out, verdicts come in.

Everything that decides what text comes out happens here and in the method's device half.
The client adds the wire, retries and waiting; a test can add anything else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from edge_sdk.decoding.method import DeviceHalf, Drafted
from edge_sdk.draft.follower import Follower
from edge_sdk.errors import ProtocolError
from edge_sdk.vocab import Alignment, Vocabulary
from edge_sdk.wire import Finish, Verdict, Verify
from edge_sdk.wire.limits import MAX_DRAFT


class Origin(StrEnum):
    """Where a token of the text came from."""

    ACCEPTED = "accepted"  # drafted, and accepted by the target
    SETTLED = "settled"  # bonus or replacement after the accepted prefix
    SERVER = "server"  # decoded by the server alone


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the text: target id, bytes and origin."""

    id: int
    data: bytes
    origin: Origin


@dataclass(slots=True)
class Block:
    """A block in flight."""

    verify: Verify
    drafted: list[Drafted]
    marks: list[int]
    doomed: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a verdict meant.

    Attributes:
        tokens: new tokens of the text, in order.
        examined: drafted tokens that the target judged.
        accepted: of these, how many it kept.
        finish: why the text is complete, `Finish.NONE` if it goes on.
        stale: the block was dropped.
    """

    tokens: Sequence[Token] = field(default=())
    examined: int = 0
    accepted: int = 0
    finish: Finish = Finish.NONE
    stale: bool = False


class Rounds:
    """Blocks and verdicts of one text.

    Args:
        half: device half of the method.
        follower: the draft in step with the text, already begun; None drafts nothing.
        alignment: V_C of the pair.
        target: the target's vocabulary.
        max_tokens: most target tokens of the text.
        generated: target ids of the text so far.
        next_sequence: number of the first verify.
    """

    def __init__(
        self,
        *,
        half: DeviceHalf,
        follower: Follower | None,
        alignment: Alignment,
        target: Vocabulary,
        max_tokens: int,
        generated: Sequence[int] = (),
        next_sequence: int = 0,
    ) -> None:
        self.generated: list[int] = list(generated)
        self.next_sequence = next_sequence
        self._half = half
        self._follower = follower
        self._alignment = alignment
        self._target = target
        self._max_tokens = max_tokens
        self._in_flight: deque[Block] = deque()
        self._unsent: int | None = None
        self._penalised = half.context.sampling.repetition_penalty != 1

    @property
    def in_flight(self) -> int:
        """Blocks whose verdict is awaited."""
        return len(self._in_flight)

    def next_block(
        self,
        gamma: int,
        *,
        more: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Block | None:
        """Draft a block of at most `gamma` tokens.

        An end token ends the block, since what follows it would not be read.

        Args:
            gamma: most tokens; fewer where the text, the draft's context or the protocol
                leave less room.
            more: a further block will follow as if this one were accepted whole. Must be
                decided before any of its tokens is drawn.
            cancelled: asked between tokens; True gives up.

        Returns:
            the block, noted as in flight; None if cancelled.
        """
        last = self._in_flight[-1] if self._in_flight else None
        if last is not None and not last.verify.more:
            raise ValueError("a block may follow an unanswered one only if that one said `more`")
        base = len(self.generated) + sum(len(block.drafted) for block in self._in_flight)
        sequence = self.next_sequence
        drafted: list[Drafted] = []
        marks: list[int] = []
        follower = self._follower
        if follower is not None:
            room = min(gamma, MAX_DRAFT, self._max_tokens - base, follower.room)
            while len(drafted) < room:
                if cancelled():
                    return None
                token = self._half.draft(
                    follower.logits(),
                    position=base + len(drafted),
                    block=sequence,
                    seen=follower.seen() if self._penalised else None,
                )
                drafted.append(token)
                marks.append(follower.mark)
                follower.push(token.rank)
                if int(self._alignment.target_ids[token.rank]) in self._target.end_ids:
                    break
        verify = Verify(
            sequence=sequence,
            base=base,
            draft=self._half.pack(drafted) if drafted else b"",
            settled=self._unsent,
            parent=None if last is None else last.verify.sequence,
            more=more and bool(drafted),
        )
        self._unsent = None
        self.next_sequence += 1
        block = Block(verify, drafted, marks)
        self._in_flight.append(block)
        return block

    def receive(self, verdict: Verdict) -> Outcome:
        """Take the verdict of the oldest block in flight.

        Raises:
            ProtocolError: the verdict is impossible; the text so far stands.
        """
        if not self._in_flight:
            raise ProtocolError("the server sent a verdict that nobody awaits")
        block = self._in_flight[0]
        self._check(verdict, block)
        if verdict.stale:
            self._in_flight.popleft()
            return Outcome(stale=True)
        size = len(block.drafted)
        position = len(self.generated) + verdict.accepted
        finish = Finish(verdict.finish)
        settled = verdict.settled
        device_settles = verdict.rejection is not None
        if verdict.rejection is not None:
            settled = self._half.settle(
                verdict.rejection, block.drafted[verdict.accepted], position=position
            )
        self._in_flight.popleft()
        tokens = self._keep(block, verdict.accepted)
        # Without a settled token the text ended at the last accepted one.
        rejected = verdict.accepted < size and settled is not None
        if verdict.accepted < size:
            for later in self._in_flight:
                later.doomed = True
            if self._follower is not None:
                self._follower.rewind(block.marks[verdict.accepted])
        if settled is not None:
            tokens.append(self._append(settled, Origin.SETTLED))
            if self._follower is not None:
                self._follower.settle(settled)
            if device_settles:
                self._unsent = settled
                finish = self._finish()
        return Outcome(
            tokens=tokens,
            examined=verdict.accepted + rejected,
            accepted=verdict.accepted,
            finish=finish if finish or not tokens else self._finish(),
        )

    def renewed(self, block: Block) -> Block:
        """The oldest block in flight, for a session opened again with every token of
        `generated`: the same drafts, and nothing that refers to the lost session."""
        if not self._in_flight or self._in_flight[0] is not block:
            raise ValueError("only the oldest block can be sent to a new session")
        block.verify = replace(block.verify, settled=None, parent=None)
        return block

    def _keep(self, block: Block, count: int) -> list[Token]:
        tokens = []
        for token, mark in zip(block.drafted[:count], block.marks[:count], strict=True):
            target_id = int(self._alignment.target_ids[token.rank])
            tokens.append(self._append(target_id, Origin.ACCEPTED))
            if self._follower is not None:
                self._follower.keep(token.rank, mark)
        return tokens

    def _append(self, token: int, origin: Origin) -> Token:
        self.generated.append(token)
        return Token(token, self._target.pieces[token], origin)

    def _finish(self) -> Finish:
        if self.generated[-1] in self._target.end_ids:
            return Finish.END
        if len(self.generated) >= self._max_tokens:
            return Finish.LENGTH
        return Finish.NONE

    def _check(self, verdict: Verdict, block: Block) -> None:
        size = len(block.drafted)
        wrong = None
        if verdict.sequence != block.verify.sequence:
            wrong = f"answers {verdict.sequence}, not {block.verify.sequence}"
        elif verdict.finish not in Finish.__members__.values():
            wrong = f"has finish {verdict.finish}"
        elif verdict.stale:
            wrong = None if block.doomed else "drops a block that is not stale"
        elif block.doomed:
            wrong = "keeps a block that was drafted on a rejected one"
        elif verdict.accepted > size:
            wrong = f"accepts {verdict.accepted} of {size} drafted tokens"
        elif len(self.generated) + verdict.accepted + _settles(verdict) > self._max_tokens:
            wrong = f"goes past the {self._max_tokens} tokens that were asked for"
        elif verdict.settled is not None and not 0 <= verdict.settled < len(self._target):
            wrong = f"settles id {verdict.settled}, outside the target's {len(self._target)}"
        elif verdict.rejection is not None and (
            verdict.accepted >= size or verdict.settled is not None or verdict.finish
        ):
            wrong = "carries a rejection where none can be"
        elif (
            verdict.settled is None
            and verdict.rejection is None
            and not verdict.finish
            and not (block.verify.more and verdict.accepted == size)
        ):
            wrong = "settles nothing"
        elif verdict.settled is not None and block.verify.more and verdict.accepted == size:
            wrong = "has a bonus although more was to follow"
        if wrong:
            raise ProtocolError(
                f"the server's verdict {wrong}; the text so far stands, the server is broken or "
                f"speaks another protocol"
            )


def _settles(verdict: Verdict) -> bool:
    return verdict.settled is not None or verdict.rejection is not None
