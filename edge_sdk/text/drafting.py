"""The tokens that the device draws, and the draft in step with the text."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from edge_sdk.decoding.method import DeviceHalf, Drafted
from edge_sdk.draft.follower import Follower
from edge_sdk.text.blocks import Block
from edge_sdk.vocab import Alignment, Vocabulary


class Drafting:
    """Draws tokens with the method's device half. Without a follower nothing is drafted.

    Each drafting has coins of its own, even where it draws a position once more.

    Args:
        half: device half of the method.
        follower: the draft in step with the text, already begun.
        alignment: V_C of the pair.
        target: the target's vocabulary.
    """

    def __init__(
        self,
        half: DeviceHalf,
        follower: Follower | None,
        alignment: Alignment,
        target: Vocabulary,
    ) -> None:
        self._half = half
        self._follower = follower
        self._alignment = alignment
        self._target = target
        self._number = 0
        self._ahead: deque[tuple[Drafted, int]] = deque()  # drawn and not sent, with their marks
        self._unsure: Drafted | None = None
        self._penalised = half.context.sampling.repetition_penalty != 1

    def target_id(self, token: Drafted) -> int:
        """The id that the target has for a drafted token."""
        return int(self._alignment.target_ids[token.rank])

    @property
    def ahead(self) -> Sequence[Drafted]:
        """Tokens drawn after all that is in flight, and not sent yet."""
        return [token for token, _ in self._ahead]

    def block(
        self,
        position: int,
        most: int,
        *,
        enough: Callable[[Sequence[Drafted]], bool],
        cancelled: Callable[[], bool],
    ) -> tuple[list[Drafted], list[int]] | None:
        """Tokens of a block with their marks: what was drawn ahead, then fresh ones, up to an end
        token; None if cancelled.

        Args:
            position: of the first token.
            most: tokens of the block; fewer where the draft's context leaves less room.
            enough, cancelled: see `Rounds.next_block`.
        """
        self._number += 1
        drafted: list[Drafted] = []
        marks: list[int] = []
        follower = self._follower
        if follower is None:
            return drafted, marks
        most = min(most, follower.room + len(self._ahead))
        while self._ahead and len(drafted) < most:
            token, mark = self._ahead.popleft()
            drafted.append(token)
            marks.append(mark)
        if drafted and self._ends(drafted[-1]):
            return drafted, marks
        while len(drafted) < most:
            if cancelled():
                return None
            token = self._unsure or self._drawn(follower, position + len(drafted))
            self._unsure = None
            drafted.append(token)
            marks.append(follower.mark)
            follower.push(token.rank)
            if self._ends(token) or enough(drafted):
                break
        return drafted, marks

    def draw_ahead(self, position: int, *, after: Drafted | None) -> bool:
        """Draw one token without sending it; False if there is nothing to draw.

        Args:
            position: of the first token that was drawn ahead.
            after: the last token in flight.
        """
        follower = self._follower
        last = self._ahead[-1][0] if self._ahead else after
        if follower is None or not follower.room or (last is not None and self._ends(last)):
            return False
        self._number += 1
        token = self._drawn(follower, position + len(self._ahead))
        self._ahead.append((token, follower.mark))
        follower.push(token.rank)
        return True

    def sure(self, position: int) -> Drafted | None:
        """A token that the method keeps without asking, drawn and kept; None if it is not sure.
        The token then begins the next block."""
        follower = self._follower
        if self._unsure or follower is None or not follower.room:
            return None
        self._number += 1
        token = self._drawn(follower, position)
        if not token.sure:
            self._unsure = token
            return None
        mark = follower.mark
        follower.push(token.rank)
        follower.keep(token.rank, mark)
        return token

    def accept(self, block: Block, count: int) -> None:
        """Note that the first tokens of a block stand, and give up what was drawn after them if
        that is not all of the block."""
        if count < len(block.drafted):
            self._ahead.clear()
        if self._follower is None:
            return
        for token, mark in zip(block.drafted[:count], block.marks[:count], strict=True):
            self._follower.keep(token.rank, mark)
        if count < len(block.drafted):
            self._follower.rewind(block.marks[count])

    def follow(self, token: int) -> None:
        """Keep in step with a target token that was settled, not drafted."""
        if self._follower is None:
            return
        if self._ahead:
            drawn, mark = self._ahead.popleft()
            if self.target_id(drawn) == token:
                self._follower.keep(drawn.rank, mark)
                return
            self._ahead.clear()
            self._follower.rewind(mark)
        self._follower.settle(token)

    def again(self, drafted: Sequence[Drafted]) -> list[int]:
        """Push tokens that were rewound once more; returns their marks."""
        if self._follower is None:
            return [0] * len(drafted)
        marks = []
        for token in drafted:
            marks.append(self._follower.mark)
            self._follower.push(token.rank)
        return marks

    def _ends(self, token: Drafted) -> bool:
        return self.target_id(token) in self._target.end_ids

    def _drawn(self, follower: Follower, position: int) -> Drafted:
        return self._half.draft(
            follower.logits(),
            position=position,
            block=self._number,
            seen=follower.seen() if self._penalised else None,
        )
