"""OpenAI's client and the SDK get the same text of a real model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
from harness.serving import connected, serving

from edge_sdk import Sampling
from edge_sdk.chat import Message, plain_rendering
from server_app.target.loading import load_target

pytestmark = pytest.mark.models


async def test_gemma_with_the_plain_rendering(gemma_folder: Path) -> None:
    def target() -> Any:
        return load_target(gemma_folder, dtype="float32", chat_template="plain")

    turns = [Message("system", "You answer in one word."), Message("user", "The capital of Peru?")]
    messages: Any = [{"role": turn.role, "content": turn.content} for turn in turns]
    options: dict[str, Any] = {"seed": 11, "max_tokens": 12, "temperature": 0.7}
    with serving(target) as server:
        name = server.target.name
        url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
            assert [model.id async for model in client.models.list()] == [name]
            reply = await client.chat.completions.create(model=name, messages=messages, **options)
            text = await client.completions.create(
                model=name, prompt=plain_rendering(turns), **options
            )
            greedy = await client.completions.create(
                model=name, prompt="One, two, three, four,", temperature=0, max_tokens=4
            )
        async with connected(server, reply=60) as sdk:
            stream = sdk.generate(
                messages=turns,
                method="autoregressive",
                seed=11,
                max_tokens=12,
                sampling=Sampling(temperature=0.7),
            )
            async for _ in stream:
                pass
        assert server.sessions == 0
    assert reply.choices[0].message.content == stream.text
    assert text.choices[0].text == stream.text
    assert greedy.choices[0].text.startswith(" five")
    assert reply.usage is not None
    assert text.usage is not None
    assert reply.usage.prompt_tokens == text.usage.prompt_tokens > 10
