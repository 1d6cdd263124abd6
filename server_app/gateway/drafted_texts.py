"""All texts of one request to a gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from edge_sdk.stats import Stats
from server_app.gateway.drafted_text import DraftedText
from server_app.gateway.pool import Pool
from server_app.openai.interface.text_request import TextRequest
from server_app.openai.interface.texts import Texts

_TOLD: Final = (
    "acceptance",
    "target_calls_per_token",
    "tokens_per_second",
    "up_bits_per_token",
    "down_bits_per_token",
    "draft_seconds",
    "link_seconds",
    "verify_seconds",
    "overhead_seconds",
)


class DraftedTexts(Texts):
    """They share the gateway's drafts, so some may wait for others. The reply begins with the
    first token of the first of them. Deltas wait for a slow reader in any number, since a text
    that waited would keep its draft from others; `max_tokens` bounds them.

    Raises:
        ServerUnavailable: the gateway's queue is full.
    """

    def __init__(self, pool: Pool, request: TextRequest, *, context: int, method: str) -> None:
        self._admission = pool.admit(self.stop)
        self._drafted = [
            DraftedText(
                pool,
                prompt,
                generation,
                method=method,
                seeded=request.seed is not None,
                index=index,
                stop=request.stop or (),
            )
            for index, (prompt, generation) in enumerate(request.orders(context))
        ]
        super().__init__(self._drafted, choices=request.choices, together=False)

    @property
    def usage(self) -> dict[str, Any]:
        """As OpenAI has it, and under `cosd` what it took (docs/glossary.md)."""
        stats = total([text.stats for text in self._drafted])
        figures = {name: round(getattr(stats, name), 6) for name in _TOLD}
        return {**super().usage, "cosd": {"method": stats.method, **figures}}

    async def aclose(self) -> None:
        """End every text and give the place in the queue back. Idempotent."""
        try:
            await super().aclose()
        finally:
            self._admission.end()


def total(runs: Sequence[Stats]) -> Stats:
    """The sums of several texts' counts and times."""
    summed = Stats(method=", ".join(sorted({run.method for run in runs if run.method})))
    for field in fields(Stats):
        if field.name != "method":
            setattr(summed, field.name, sum(getattr(run, field.name) for run in runs))
    return summed
