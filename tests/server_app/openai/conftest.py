"""A server of a toy target and OpenAI's own clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import openai
import pytest
from harness.serving import Serving, serving

KEY = "key-of-one"


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving(keys=(KEY, "key-of-two"), model_aliases=("gpt-toy", "org/toy")) as running:
        yield running
        assert running.sessions == 0


@pytest.fixture
def client(server: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as made:
        yield made


@pytest.fixture
async def async_client(server: Serving) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{server.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as made:
        yield made
