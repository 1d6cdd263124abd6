"""Arguments whose value cannot be, refused here or by the server."""

from __future__ import annotations

from typing import Any

import pytest
from harness.serving import (
    PROMPT,
    VOCABULARY,
    Serving,
    connected,
    ids_of,
    related_draft,
    serving,
    toy_target,
)

from edge_sdk import Sampling
from edge_sdk.errors import CosdError, InvalidRequest
from server_app.target.toy import ToyTarget


@pytest.mark.parametrize(
    ("arguments", "field", "say"),
    [
        ({"prompt": ""}, "prompt", "empty"),
        ({"messages": []}, "prompt", "empty"),
        ({"prompt_ids": []}, "prompt", "empty"),
        ({}, "prompt", "exactly one"),
        ({"prompt": "a", "prompt_ids": [1]}, "prompt", "exactly one"),
        ({"prompt": b"a"}, "prompt", "not a string"),
        ({"prompt": "a", "method": "magic"}, "method", "there are hybrid, "),
        ({"prompt": "a", "gamma": 0}, "gamma", "within"),
        ({"prompt": "a", "gamma": 65}, "gamma", "within"),
        ({"prompt": "a", "gamma": 2.5}, "gamma", "integer"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens", "within"),
        ({"prompt": "a", "max_tokens": 1.5}, "max_tokens", "integer"),
        ({"prompt": "a", "seed": -1}, "seed", "64 bits"),
        ({"prompt": "a", "seed": 2**64}, "seed", "64 bits"),
        ({"prompt": "a", "seed": 0.5}, "seed", "integer"),
        ({"prompt": "a", "stop": [""]}, "stop", "characters"),
        ({"prompt": "a", "stop": "the"}, "stop", "list"),
        ({"prompt_ids": ["x"]}, "prompt_ids", "integer"),
        ({"prompt": "a", "method": "greedy", "sampling": Sampling()}, "temperature", "greedy"),
    ],
)
async def test_bad_arguments_are_named(
    server: Serving, arguments: dict[str, Any], field: str, say: str
) -> None:
    async with connected(server, related_draft()) as client:
        with pytest.raises(InvalidRequest, match=say) as caught:
            client.generate(**arguments)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": 1e-9}, "temperature"),
        ({"temperature": 1e9}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": float("nan")}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 1.0}, "top_k"),
        ({"min_p": -0.1}, "min_p"),
        ({"min_p": 2}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty"),
    ],
)
def test_bad_sampling_is_named(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field) as caught:
        Sampling(**values)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"prompt": "x" * 5000}, "prompt_too_long"),
        ({"prompt": "half a pair \ud800"}, "invalid_request"),
        ({"prompt_ids": [len(VOCABULARY)]}, "invalid_request"),
        ({"prompt_ids": [-1]}, "invalid_request"),
        ({"prompt_ids": [len(VOCABULARY) - 1]}, "invalid_request"),
        ({"prompt_ids": [2**70]}, "invalid_request"),
        ({"messages": [{"role": "user"}]}, "invalid_request"),
    ],
)
@pytest.mark.parametrize("method", ["hybrid", "autoregressive"])
async def test_what_the_server_refuses(
    server: Serving, method: str, arguments: dict[str, Any], code: str
) -> None:
    async with connected(server, related_draft()) as client:
        with pytest.raises(CosdError) as caught:
            await ids_of(client.generate(method=method, **arguments))
        assert caught.value.code == code
        assert await ids_of(client.generate(PROMPT, max_tokens=2))


async def test_a_chat_for_a_target_without_template() -> None:
    from edge_sdk import Message
    from edge_sdk.errors import NoChatTemplate

    def mute() -> ToyTarget:
        target = toy_target()
        target._chat = False
        return target

    with serving(mute) as server:
        async with connected(server, related_draft()) as client:
            with pytest.raises(NoChatTemplate, match="plain prompt"):
                await ids_of(client.generate(messages=[Message("user", "hi")]))


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://a", "http://", "http://a/?b=1", 7])
def test_addresses_that_are_none(url: Any) -> None:
    from edge_sdk import EdgeClient

    with pytest.raises(InvalidRequest, match=r"URL|address"):
        EdgeClient(url)


@pytest.mark.parametrize("key", ["", "  ", "schlüssel", "a\nb"])
def test_keys_that_no_header_can_carry(key: str) -> None:
    from edge_sdk import EdgeClient

    with pytest.raises(InvalidRequest, match="api_key"):
        EdgeClient("http://a", api_key=key)
