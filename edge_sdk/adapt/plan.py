"""What the controller decides for the next block."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the text goes on.

    Attributes:
        speculate: draft here and let the server verify; otherwise the server decodes alone.
        gamma: most drafted tokens of the next block; at least 1.
        window: most blocks in flight, the one being drafted included. 1 is one block at a
            time, with a bonus; more than 1 drafts ahead, and every block says `more`.
        tokens: tokens to ask of the server alone before the next plan; 0 where it speculates.
        probe: the block is an experiment, and not what is believed to be fastest.
        rate: tokens a second that are expected of it.
    """

    speculate: bool
    gamma: int = 1
    window: int = 1
    tokens: int = 0
    probe: bool = False
    rate: float = 0.0

    @property
    def more(self) -> bool:
        """Whether a block of this plan says that a further one follows."""
        return self.window > 1
