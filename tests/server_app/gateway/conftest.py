"""A server of a toy target, a gateway to it, and OpenAI's own clients of that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import openai
import pytest
from harness.gateway import Gateway, gateway
from harness.serving import Serving, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def gate(server: Serving) -> Iterator[Gateway]:
    with gateway(server.url, aliases=("gpt-toy",)) as running:
        yield running
    assert running.pool.requests == 0


@pytest.fixture
async def client(gate: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{gate.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as made:
        yield made
