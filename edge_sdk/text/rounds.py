"""The device's side of a text, without I/O: blocks go out, verdicts come in.

Everything that decides what text comes out happens here and in the method's device half.
The client adds the wire, retries and waiting; a test can add anything else.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from edge_sdk.decoding.method import DeviceHalf, Drafted
from edge_sdk.draft.follower import Follower
from edge_sdk.errors import ProtocolError
from edge_sdk.text.blocks import Block, Outcome, Rejected
from edge_sdk.text.drafting import Drafting
from edge_sdk.text.tokens import Origin, Token
from edge_sdk.text.verdicts import check_verdict
from edge_sdk.text.written import Written
from edge_sdk.vocab import Alignment, Vocabulary
from edge_sdk.wire import Answer, Ask, Finish, Verdict, Verify
from edge_sdk.wire.limits import MAX_BLOCKS, MAX_DRAFT
from edge_sdk.wire.packing import pack_draft


class Rounds:
    """Blocks and verdicts of one text.

    Args:
        half: device half of the method.
        follower: the draft in step with the text, already begun; None drafts nothing.
        alignment: V_C of the pair.
        target: the target's vocabulary.
        max_tokens: most target tokens of the text.
        generated: target ids of the text so far.
        next_sequence: number of the first request.
        keeps_sure: the method keeps tokens that the draft is sure of without asking.

    Attributes:
        next_sequence: number of the next request.
        state: state of the method on the server, for opening the session again.
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
        keeps_sure: bool = False,
    ) -> None:
        self.state: float | None = None
        self.next_sequence = next_sequence
        self._half = half
        self._common = len(alignment)
        self._text = Written(target, max_tokens=max_tokens, generated=generated)
        self._drafting = Drafting(half, follower, alignment, target)
        self._in_flight: deque[Block] = deque()
        self._unsent: int | None = None
        self._rejected: Rejected | None = None
        self._keeps_sure = keeps_sure
        self._kept: list[int] = []

    @property
    def generated(self) -> Sequence[int]:
        """Target ids of the text."""
        return self._text.generated

    @property
    def room(self) -> int:
        """Tokens that the target's context leaves for the text; set when it is known."""
        return self._text.room

    @room.setter
    def room(self, room: int) -> None:
        self._text.room = room

    @property
    def in_flight(self) -> int:
        """Blocks whose verdict is awaited."""
        return len(self._in_flight)

    @property
    def live(self) -> int:
        """Blocks in flight that may still be accepted."""
        return sum(not block.doomed for block in self._in_flight)

    @property
    def oldest(self) -> Block | None:
        """The block whose verdict comes next."""
        return self._in_flight[0] if self._in_flight else None

    @property
    def ahead(self) -> int:
        """Tokens drawn after all that is in flight, and not sent yet."""
        return len(self._drafting.ahead)

    def unverified(self) -> list[Token]:
        """Drafted tokens that follow the text, in flight or not sent yet."""
        ids = [self._drafting.target_id(token) for token in self._drawn()]
        return [self._text.token(token, Origin.UNVERIFIED) for token in ids]

    def draw_ahead(self) -> bool:
        """Draw one token after everything that was drawn, without sending it; False if there is
        nothing to draw.

        The blocks to come begin with it. If the server settles its position first, with a bonus
        that the last block in flight left to it, that settles the position, whatever was drawn
        here; what was drawn after it goes on only if both are the same token, and has the law
        of a draft after that token then as before.
        """
        if self._keeps_sure or self._rejected is not None or self.left <= self.ahead:
            return False
        drawn = self._drawn()
        return self._drafting.draw_ahead(self._base(), after=drawn[-1] if drawn else None)

    @property
    def asking(self) -> bool:
        """A rejected position waits for more from the server."""
        return self._rejected is not None

    @property
    def may_follow(self) -> bool:
        """A further block may be drafted now: none is awaited, or the last one said `more`, or
        it is known to be stale."""
        last = self._in_flight[-1] if self._in_flight else None
        return self._rejected is None and (last is None or last.doomed or last.verify.more)

    @property
    def left(self) -> int:
        """Tokens that the text may still have after those in flight, all accepted."""
        return self._text.most - self._base()

    def keep_sure(self) -> Outcome | None:
        """Draft one token and keep it if the method is sure of it without the server; None if
        not, or if nothing can be drafted. The token then begins the next block."""
        if not self._keeps_sure or (token := self._drafting.sure(len(self._text))) is None:
            return None
        self._kept.append(token.rank)
        kept = self._text.append(self._drafting.target_id(token), Origin.UNVERIFIED)
        return Outcome(tokens=(kept,), finish=self._text.finish)

    def next_block(
        self,
        gamma: int,
        *,
        more: bool = False,
        enough: Callable[[Sequence[Drafted]], bool] = lambda drafted: False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Block | None:
        """Draft a block of at most `gamma` tokens.

        It follows the last block in flight as if that one will be accepted whole; after one
        that is known to be stale, it follows the text. It begins with what was drawn ahead, and
        says `more` if some of that is left: a token once drawn is sent.

        An end token ends the block, since what follows it would not be read.

        Args:
            gamma: most tokens; fewer where the text, the draft's context or the protocol
                leave less room.
            more: a further block will follow as if this one were accepted whole. Must be
                decided before any of its tokens is drawn.
            enough: asked after each token with those of the block; True ends it. It may look at
                them and their laws only: a token once drawn is sent.
            cancelled: asked between tokens; True gives the block up. May depend on verdicts
                that came in meanwhile, not on the block's tokens; the next verdict rewinds.

        Returns:
            the block, noted as in flight; None if cancelled.
        """
        if not self.may_follow:
            raise ValueError(
                "a block may follow an unanswered one only if that one said `more` and may still "
                "be accepted"
            )
        last = self._in_flight[-1] if self._in_flight else None
        if last is not None and last.doomed:
            last = None
        base = self._base()
        most = min(gamma, MAX_DRAFT, self.left)
        drawn = self._drafting.block(base, most, enough=enough, cancelled=cancelled)
        if drawn is None:
            return None
        drafted, marks = drawn
        verify = Verify(
            sequence=self.next_sequence,
            base=base,
            draft=self._half.pack(drafted) if drafted else b"",
            settled=self._unsent,
            parent=None if last is None else last.verify.sequence,
            more=(more or self.ahead > 0) and bool(drafted),
            kept=self._packed(self._kept),
        )
        self._unsent = None
        self._kept = []
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
        check_verdict(
            verdict,
            block,
            length=len(self._text),
            max_tokens=self._text.max_tokens,
            target_size=len(self._text.target),
        )
        if verdict.stale:
            self._in_flight.popleft()
            return Outcome(stale=True)
        size = len(block.drafted)
        position = len(self._text) + verdict.accepted
        finish = Finish(verdict.finish)
        settled = verdict.settled
        if verdict.rejection is not None:
            settled = self._half.settle(
                verdict.rejection, block.drafted[verdict.accepted], position=position, block=0
            )
        self._in_flight.popleft()
        self.state = verdict.state
        tokens = self._keep(block, verdict.accepted)
        asking = verdict.rejection is not None and settled is None
        # Without a settled token the text ended at the last accepted one.
        rejected = verdict.accepted < size and (settled is not None or asking)
        if verdict.accepted < size:
            for later in self._in_flight:
                later.doomed = True
        if asking:
            self._rejected = Rejected(block.drafted[verdict.accepted :], position)
        elif settled is not None and verdict.rejection is not None:
            tokens.append(self._settled_here(settled))
            finish = self._text.finish
        elif settled is not None:
            tokens.append(self._settled(settled))
        return Outcome(
            tokens=tokens,
            examined=verdict.accepted + rejected,
            accepted=verdict.accepted,
            finish=finish if finish or not tokens else self._text.finish,
            asking=asking,
            nll=verdict.nll,
        )

    def ask(self) -> Ask:
        """The request for more to settle the rejected position with.

        Raises:
            ProtocolError: the server gave more than any position can need.
        """
        if self._rejected is None:
            raise ValueError("no rejected position waits")
        if self._rejected.asked == MAX_BLOCKS:
            raise ProtocolError(
                f"the server answered {MAX_BLOCKS} times and the position is still not settled; "
                f"the text so far stands"
            )
        self._rejected.asked += 1
        message = Ask(sequence=self.next_sequence, block=self._rejected.asked)
        self.next_sequence += 1
        return message

    def answer(self, answer: Answer) -> Outcome:
        """Take what was asked for.

        Raises:
            ProtocolError: it is impossible; the text so far stands.
        """
        rejected = self._rejected
        if rejected is None or answer.sequence != self.next_sequence - 1:
            raise ProtocolError("the server answers something that was not asked")
        token = self._half.settle(
            answer.rejection,
            rejected.drafted[0],
            position=rejected.position,
            block=rejected.asked,
        )
        if token is None:
            return Outcome(asking=True)
        self._rejected = None
        return Outcome(tokens=(self._settled_here(token),), finish=self._text.finish)

    def rejected_again(self) -> Block:
        """After the session was lost while a rejected position waited: the rest of that block,
        for a session opened again. The same coins refuse the same token there."""
        if self._rejected is None:
            raise ValueError("no rejected position waits")
        drafted = self._rejected.drafted
        self._rejected = None
        self._in_flight.clear()
        marks = self._drafting.again(drafted)
        verify = Verify(
            sequence=self.next_sequence, base=len(self._text), draft=self._half.pack(drafted)
        )
        self.next_sequence += 1
        block = Block(verify, drafted, marks)
        self._in_flight.append(block)
        return block

    def renewed(self) -> list[Block]:
        """The blocks to send to a session opened again with every token of `generated`, oldest
        first: the same drafts, and nothing that refers to the lost session. It begins with
        the number of the first, or with `next_sequence` if there is none."""
        while self._in_flight and self._in_flight[0].doomed:
            self._in_flight.popleft()
        self._unsent = None
        self._kept = []
        if self._in_flight:
            first = self._in_flight[0]
            first.verify = replace(first.verify, settled=None, parent=None, kept=b"")
        return list(self._in_flight)

    def streamed(self, token: int) -> Outcome:
        """Take a token that the server decoded alone, while no block is in flight.

        Raises:
            ProtocolError: the id is outside of the target's vocabulary, or the text is complete.
        """
        if self._in_flight or self._rejected is not None:
            raise ValueError("a block is in flight")
        if not 0 <= token < len(self._text.target):
            raise ProtocolError(f"the server's stream has token {token}")
        if self.left < 1:
            raise ProtocolError(f"the server's stream goes on after {len(self._text)} tokens")
        self._unsent = None
        self._drafting.follow(token)
        return Outcome(tokens=(self._text.append(token, Origin.SERVER),), finish=self._text.finish)

    @property
    def unsent(self) -> int | None:
        """The last token, if the device settled it and the server does not know it yet."""
        return self._unsent

    def _drawn(self) -> list[Drafted]:
        """Drafted tokens that follow the text."""
        live = (block.drafted for block in self._in_flight if not block.doomed)
        return [*itertools.chain.from_iterable(live), *self._drafting.ahead]

    def _base(self) -> int:
        """Tokens of the text if all that may still be accepted is."""
        return len(self._text) + sum(
            len(block.drafted) for block in self._in_flight if not block.doomed
        )

    def _keep(self, block: Block, count: int) -> list[Token]:
        self._drafting.accept(block, count)
        ids = [self._drafting.target_id(token) for token in block.drafted[:count]]
        return [self._text.append(token, Origin.ACCEPTED) for token in ids]

    def _settled(self, token: int) -> Token:
        self._drafting.follow(token)
        return self._text.append(token, Origin.SETTLED)

    def _settled_here(self, token: int) -> Token:
        """A token that the device settled, which the server does not know yet."""
        self._unsent = token
        return self._settled(token)

    def _packed(self, ranks: Sequence[int]) -> bytes:
        return pack_draft(np.array(ranks), None, size=self._common) if ranks else b""
