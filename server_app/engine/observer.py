"""What the engine and the host tell whoever watches them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of the engine: one forward pass and what was made of it.

    Attributes:
        prefills: works that filled their cache.
        verifies: works whose rows were judged.
        tokens: tokens fed.
        rows: rows of logits.
        forward_seconds: time of the forward pass.
        seconds: time of the whole step, the forward pass included.
        waits: per work that began in this step, seconds since it was handed in.
    """

    prefills: int
    verifies: int
    tokens: int
    rows: int
    forward_seconds: float
    seconds: float
    waits: Sequence[float]


class Observer:
    """Does nothing; a subclass counts. Called from the engine thread and the event loop, so it
    must be quick and safe from any thread."""

    def step(self, report: StepReport) -> None:
        """A step is done."""

    def verdict(self, method: str, drafted: int, examined: int, accepted: int) -> None:
        """A block was judged."""

    def stale(self, method: str) -> None:
        """A block was dropped without computation."""

    def session_evicted(self, reason: str) -> None:
        """A session was dropped: "ttl" or "limit"."""

    def cache_evicted(self, tokens: int) -> None:
        """The keys and values of an idle session were dropped to make room."""

    def prefix_shared(self, tokens: int) -> None:
        """A session began with so many tokens of another's cache."""

    def fault(self) -> None:
        """The model raised on a work."""
