"""What is enumerated: two laws, a method, and how the device goes about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge_sdk.decoding.method import Method
from edge_sdk.sampling import Sampling
from edge_sdk.vocab import Vocabulary


@dataclass(frozen=True)
class Plan:
    """How the device goes about it.

    Attributes:
        gammas: draft length of each round in turn; the last one is repeated.
        ahead: blocks sent before the answer to the first (`more`); 0 sends one at a time.
        stop_after_ahead: say `more`, but then send an empty block instead of drafting.
        lose_replies: every request is sent twice; the first reply is thrown away.
        reopen: the server loses the session before it gets the verify of these rounds, and
            with it what is in flight.
        forget: it loses the session after it answered these rounds, and the answer is lost.
        at_once: after a rejection the next block goes out before the verdicts of the stale ones
            are read.
        interrupt: a rejection is seen while the next block is being drafted, after this many of
            its tokens; the block is given up.
        alone: before these rounds, if nothing is in flight, the server decodes so many tokens.
        stop_at: draft no further once a token of this rank is in the block.
        reopen_asks: it loses the session before it gets these requests for more.
        offline: after these rounds were sent, the link is down while the device draws so many
            tokens alone.
    """

    gammas: Sequence[int] = (2,)
    ahead: int = 0
    stop_after_ahead: bool = False
    lose_replies: bool = False
    reopen: frozenset[int] = frozenset()
    forget: frozenset[int] = frozenset()
    reopen_asks: frozenset[int] = frozenset()
    stop_at: int | None = None
    at_once: bool = False
    interrupt: int | None = None
    alone: Mapping[int, int] = field(default_factory=dict)
    offline: Mapping[int, int] = field(default_factory=dict)


@dataclass
class Case:
    """One law to check."""

    name: str
    target_laws: Any
    draft_laws: Any
    target_vocabulary: Vocabulary
    draft_vocabulary: Vocabulary
    method: Method
    sampling: Sampling = field(default_factory=Sampling)
    plan: Plan = field(default_factory=Plan)
    tokens: int = 3
    prompt: tuple[int, ...] = (0,)
    context: int = 4096

    def __str__(self) -> str:
        return self.name
