"""The server's own texts, and samplings as OpenAI's clients give them."""

from __future__ import annotations

from typing import Any

from harness.serving import PROMPT, Serving, connected

# Arguments of OpenAI's clients, and what they send as `extra_body`.
SAMPLINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"temperature": 0.4}, {}),
    ({"temperature": 1.3, "top_p": 0.8}, {}),
    ({}, {"top_k": 7, "min_p": 0.01}),
    ({}, {"repetition_penalty": 1.3}),
]


async def own_text(
    server: Serving, prompt: str = PROMPT, *, api_key: str | None = None, **options: Any
) -> str:
    """The server's own text, as the SDK gets it."""
    async with connected(server, api_key=api_key) as client:
        stream = client.generate(prompt, method="autoregressive", **options)
        async for _ in stream:
            pass
        return stream.text
