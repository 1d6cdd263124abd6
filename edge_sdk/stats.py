"""What a generation cost. One glossary for SDK, benchmarks and metrics (docs/glossary.md)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Stats:
    """Totals of one generation.

    Attributes:
        method: name of the decoding method.
        prompt_tokens: target tokens of the prompt.
        reused_tokens: of these, how many the server had from the turn before; a conversation's.
        tokens: target tokens emitted.
        rounds: verifies answered, stale ones included.
        asks: further trips to settle a rejected position.
        drafted: tokens drafted.
        examined: drafted tokens that the target judged.
        accepted: of these, how many it kept.
        target_calls: forward passes of the target after the prefill.
        up_bytes, down_bytes: bodies of round messages.
        wire_up_bytes, wire_down_bytes: the same with HTTP or WebSocket framing.
        round_seconds: from sending a block to its verdict.
        server_seconds: of these, what the server reports to have spent.
        seconds: from the first round to the end; drafting, waiting and `overhead_seconds`
            are parts of it that do not overlap.
        draft_seconds: in the draft model and its sampling.
        link_seconds: waiting for a reply on its way there or back, failed tries included.
        verify_seconds: waiting for the server to verify, or to decode alone.
        open_seconds: opening the session, draft prompt included.
        common_vocabulary: |V_C|, 0 without a draft.
        target_nll: summed -ln p of `nll_tokens` tokens, where the method reports it.
        nll_tokens: these may be a few more than the text's, which a stop string cuts.
        reopened: sessions opened again after one was lost.
        retries: requests sent again.
    """

    method: str = ""
    prompt_tokens: int = 0
    reused_tokens: int = 0
    tokens: int = 0
    rounds: int = 0
    asks: int = 0
    drafted: int = 0
    examined: int = 0
    accepted: int = 0
    target_calls: int = 0
    up_bytes: int = 0
    down_bytes: int = 0
    wire_up_bytes: int = 0
    wire_down_bytes: int = 0
    round_seconds: float = 0.0
    server_seconds: float = 0.0
    seconds: float = 0.0
    draft_seconds: float = 0.0
    link_seconds: float = 0.0
    verify_seconds: float = 0.0
    open_seconds: float = 0.0
    common_vocabulary: int = 0
    target_nll: float = 0.0
    nll_tokens: int = 0
    reopened: int = 0
    retries: int = 0

    @property
    def acceptance(self) -> float:
        """Accepted / examined drafts."""
        return self.accepted / self.examined if self.examined else 0.0

    @property
    def target_calls_per_token(self) -> float:
        """Forward passes after the prefill / emitted tokens."""
        return self._per_token(self.target_calls)

    @property
    def mean_target_nll(self) -> float:
        """Target's -ln p a token in nats; only methods that report it (`consultant`)."""
        return self.target_nll / self.nll_tokens if self.nll_tokens else 0.0

    @property
    def overhead_seconds(self) -> float:
        """What is left of `seconds`: the SDK's own work, and the reader's at the pieces."""
        return self.seconds - self.draft_seconds - self.link_seconds - self.verify_seconds

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def up_bits_per_token(self) -> float:
        return self._per_token(8 * self.up_bytes)

    @property
    def down_bits_per_token(self) -> float:
        return self._per_token(8 * self.down_bytes)

    @property
    def up_bits_per_drafted_token(self) -> float:
        return 8 * self.up_bytes / self.drafted if self.drafted else 0.0

    @property
    def wire_up_bits_per_token(self) -> float:
        return self._per_token(8 * self.wire_up_bytes)

    @property
    def wire_down_bits_per_token(self) -> float:
        return self._per_token(8 * self.wire_down_bytes)

    def _per_token(self, amount: float) -> float:
        return amount / self.tokens if self.tokens else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Counts and ratios by name."""
        ratios = (
            "acceptance",
            "target_calls_per_token",
            "mean_target_nll",
            "overhead_seconds",
            "tokens_per_second",
            "up_bits_per_token",
            "down_bits_per_token",
            "up_bits_per_drafted_token",
            "wire_up_bits_per_token",
            "wire_down_bits_per_token",
        )
        return asdict(self) | {name: getattr(self, name) for name in ratios}
