"""Blocks in flight and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edge_sdk.decoding.method import Drafted
from edge_sdk.text.tokens import Token
from edge_sdk.wire import Finish, Verdict, Verify


@dataclass(slots=True)
class Block:
    """A block in flight."""

    verify: Verify
    drafted: list[Drafted]
    marks: list[int]
    doomed: bool = False

    def refused_by(self, verdict: Verdict) -> bool:
        """The verdict refuses one of its tokens, so that what is drafted on it is stale. That of a
        block which is stale itself says nothing of what was drafted since."""
        return not self.doomed and 0 <= verdict.accepted < len(self.drafted)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a verdict meant.

    Attributes:
        tokens: new tokens of the text, in order.
        examined: drafted tokens that the target judged.
        accepted: of these, how many it kept.
        finish: why the text is complete, `Finish.NONE` if it goes on.
        stale: the block was dropped.
        asking: the position after `tokens` needs more from the server; see `Rounds.ask`.
        nll: summed -ln p of the tokens, where the method reports it.
    """

    tokens: Sequence[Token] = field(default=())
    examined: int = 0
    accepted: int = 0
    finish: Finish = Finish.NONE
    stale: bool = False
    asking: bool = False
    nll: float | None = None


@dataclass(slots=True)
class Rejected:
    """A rejected position that the device could not settle yet."""

    drafted: list[Drafted]
    position: int
    asked: int = 0
