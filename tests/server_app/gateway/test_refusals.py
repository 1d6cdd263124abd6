"""What a gateway refuses, and what becomes of its texts when clients or the server leave."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx
import openai
import pytest
from harness.gateway import Gateway, gateway, slow_target
from harness.serving import PROMPT, Serving, serving, until

COMPLETION: dict[str, Any] = {"model": "toy", "prompt": PROMPT, "max_tokens": 3}
LONG: dict[str, Any] = {"model": "toy", "prompt": PROMPT, "max_tokens": 4000}


def asking(gate: Gateway, key: str = "none") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gate.url}/v1", api_key=key, max_retries=0)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/completions", {**COMPLETION, "logprobs": 2}, "logprobs"),
        ("/completions", {**COMPLETION, "temperature": -1}, "temperature"),
        ("/completions", {**COMPLETION, "unknown": 1}, "unknown"),
        ("/completions", {**COMPLETION, "prompt": ""}, "prompt"),
        ("/completions", {**COMPLETION, "prompt": "the sea " * 4000}, "prompt"),
        ("/chat/completions", {"model": "toy", "messages": []}, "messages"),
        (
            "/chat/completions",
            {"model": "toy", "messages": [{"role": "user", "content": "the sea " * 4000}]},
            "messages",
        ),
    ],
)
async def test_what_is_wrong_is_named(
    client: openai.AsyncOpenAI, path: str, body: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.post(path, body=body, cast_to=object)
    assert caught.value.param == param


async def test_another_model(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.completions.create(**{**COMPLETION, "model": "gpt-5"})
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError, match="nothing at /v1/embeddings"):
        await client.post("/embeddings", body={}, cast_to=object)


async def test_the_key(server: Serving) -> None:
    with gateway(server.url, key="own") as gate:
        async with asking(gate, "own") as client:
            assert (await client.completions.create(**COMPLETION)).choices
            # With the key, a web page may ask too.
            await client.models.list(extra_headers={"origin": "https://example.org"})
        async with asking(gate, "wrong") as client:
            with pytest.raises(openai.AuthenticationError, match="COSD_GATEWAY_KEY"):
                await client.completions.create(**COMPLETION)
        async with httpx.AsyncClient(base_url=gate.url) as plain:
            assert (await plain.get("/health")).status_code == 200
            assert (await plain.get("/v1/models")).status_code == 401


async def test_web_pages_are_refused_without_a_key(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.AuthenticationError, match="web page"):
        await client.completions.create(
            **COMPLETION, extra_headers={"origin": "https://example.org"}
        )


async def test_a_full_queue(server: Serving) -> None:
    with gateway(server.url, queue=1) as gate:
        async with asking(gate) as client:
            first = await client.completions.create(**LONG, stream=True)
            await anext(aiter(first))
            second = asyncio.create_task(client.completions.create(**COMPLETION))
            await until(lambda: gate.pool.requests == 2)
            with pytest.raises(openai.APIStatusError) as caught:
                await client.completions.create(**COMPLETION)
            assert caught.value.status_code == 503
            assert int(caught.value.response.headers["retry-after"]) >= 1
            assert not second.done()
            await first.close()
            assert (await second).choices
        await until(lambda: gate.pool.requests == 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_its_text(stream: bool) -> None:
    with serving(slow_target(0.02)) as server, gateway(server.url) as gate:
        async with asking(gate) as client:
            task = asyncio.create_task(_all(client, stream))
            await until(lambda: gate.pool.writing == 1 and server.sessions == 1)
            await asyncio.sleep(0.1)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await until(lambda: gate.pool.writing == 0 and gate.pool.requests == 0, seconds=2)
            await until(lambda: server.sessions == 0)
            assert (await client.completions.create(**COMPLETION)).choices


async def test_a_client_that_leaves_the_queue(server: Serving) -> None:
    with gateway(server.url) as gate:
        async with asking(gate) as client:
            first = await client.completions.create(**LONG, stream=True)
            await anext(aiter(first))
            waiting = asyncio.create_task(client.completions.create(**COMPLETION))
            await until(lambda: gate.pool.requests == 2)
            waiting.cancel()
            await until(lambda: gate.pool.requests == 1)
            await first.close()
            await until(lambda: gate.pool.requests == 0)


async def _all(client: openai.AsyncOpenAI, stream: bool) -> None:
    if stream:
        async for _ in await client.completions.create(**LONG, stream=True):
            pass
    else:
        await client.completions.create(**LONG)


async def test_no_server() -> None:
    with gateway("http://127.0.0.1:1") as gate:
        async with asking(gate) as client:
            with pytest.raises(openai.InternalServerError, match="no connection") as caught:
                await client.completions.create(**COMPLETION)
            assert caught.value.status_code == 502
            assert caught.value.code == "connection_failed"
            assert await client.get("../health", cast_to=object)


async def test_a_server_that_dies_in_mid_text_and_comes_back() -> None:
    with serving(slow_target(0.01)) as server, gateway(server.url) as gate:
        async with asking(gate) as client:
            events = await client.completions.create(**LONG, stream=True)
            await anext(aiter(events))
            server.stop(hard=True)
            with pytest.raises(openai.APIError, match="no connection"):
                async for _ in events:
                    pass
            with pytest.raises(openai.InternalServerError):
                await client.completions.create(**COMPLETION)
            server.start()
            assert (await client.completions.create(**COMPLETION)).choices


async def test_a_wrong_key_for_the_server_is_not_the_askers_fault() -> None:
    with serving(keys=("right",)) as server, gateway(server.url, server_key="wrong") as gate:
        async with asking(gate) as client:
            with pytest.raises(openai.InternalServerError, match="COSD_API_KEY") as caught:
                await client.completions.create(**COMPLETION)
            assert caught.value.status_code == 502
