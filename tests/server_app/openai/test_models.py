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


def test_refusals_serve_the_sdk_and_openai_s_clients(
    server: Serving, client: openai.OpenAI
) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("gpt-4")
    assert (missing.value.code, missing.value.param) == ("not_found", "model")
    with pytest.raises(openai.NotFoundError, match="nothing at /v1/embeddings") as nowhere:
        client.post("/embeddings", body={}, cast_to=object)
    assert nowhere.value.type == "invalid_request_error"
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError) as wrong,
    ):
        stranger.models.list()
    assert (wrong.value.type, wrong.value.param) == ("authentication_error", None)
    assert wrong.value.code == "unauthorized"
    assert wrong.value.body == {
        "code": "unauthorized",
        "message": "the API key is not accepted by this server",
        "field": None,
        "type": "authentication_error",
        "param": None,
    }


async def test_the_sdk_reads_its_card(server: Serving) -> None:
    async with connected(server, api_key="key-of-one") as sdk:
        await sdk.connect()
        assert sdk.card.model == "toy"
