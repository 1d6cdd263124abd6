"""`/v1/models` for OpenAI's clients."""

from __future__ import annotations

import openai
import pytest
from harness.serving import Serving, connected


def test_list(client: openai.OpenAI) -> None:
    listed = list(client.models.list())
    assert [model.id for model in listed] == ["toy", "gpt-toy", "org/toy"]
    assert {model.object for model in listed} == {"model"}
    assert all(model.created > 1_700_000_000 and model.owned_by for model in listed)


def test_one(client: openai.OpenAI) -> None:
    for name in ("toy", "org/toy"):
        assert client.models.retrieve(name).id == name
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


async def test_the_sdk_reads_its_card(server: Serving) -> None:
    async with connected(server, api_key="key-of-one") as sdk:
        await sdk.connect()
        assert sdk.card.model == "toy"
