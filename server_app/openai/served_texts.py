"""All texts of one request, written at the same time."""

from __future__ import annotations

from typing import Final

from server_app.host import Host
from server_app.observability.facts import current_facts
from server_app.openai.interface.text_request import TextRequest
from server_app.openai.interface.texts import Texts
from server_app.openai.served_text import ServedText

_AHEAD: Final = 64  # deltas that wait for the reader


class ServedTexts(Texts):
    """Each text has a session of its own, so that all of them share the engine's steps."""

    def __init__(self, host: Host, owner: str, request: TextRequest) -> None:
        orders = request.orders(host.target.context)
        super().__init__(
            [
                ServedText(host, owner, prompt, generation, index=index, stop=request.stop or ())
                for index, (prompt, generation) in enumerate(orders)
            ],
            choices=request.choices,
            ahead=_AHEAD,
        )

    async def aclose(self) -> None:
        """End every text and its session. Idempotent."""
        current_facts().tokens = self.completion_tokens
        await super().aclose()
