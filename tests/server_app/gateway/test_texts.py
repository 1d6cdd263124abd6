"""OpenAI's own client against a gateway: texts, their law and their cost."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from harness.gateway import Gateway, gateway
from harness.own_texts import SAMPLINGS, own_text
from harness.serving import GREEDY, PROMPT, VOCABULARY, Serving, greedy_ids, until

from edge_sdk import Sampling

MODEL = "toy"


@pytest.mark.parametrize(("given", "extra"), SAMPLINGS)
async def test_a_seed_gives_the_servers_own_text(
    server: Serving, client: openai.AsyncOpenAI, given: dict[str, Any], extra: dict[str, Any]
) -> None:
    wanted = await own_text(server, seed=77, max_tokens=40, sampling=Sampling(**given, **extra))
    reply = await client.completions.create(
        model=MODEL, prompt=PROMPT, seed=77, max_tokens=40, extra_body=extra, **given
    )
    assert reply.choices[0].text == wanted
    assert reply.usage is not None
    assert reply.usage.model_extra["cosd"]["method"] == "coupled"
    pieces = await client.completions.create(
        model=MODEL, prompt=PROMPT, seed=77, max_tokens=40, stream=True, extra_body=extra, **given
    )
    assert "".join([piece.choices[0].text async for piece in pieces]) == wanted


async def test_a_reply_and_what_it_cost(server: Serving, client: openai.AsyncOpenAI) -> None:
    reply = await client.completions.create(
        model="gpt-toy", prompt=PROMPT, temperature=0, max_tokens=30
    )
    choice = reply.choices[0]
    ids = greedy_ids(server.target, PROMPT, 30)
    assert choice.text == b"".join(VOCABULARY.pieces[i] for i in ids).decode()
    assert choice.finish_reason == "length"
    assert reply.model == MODEL
    assert reply.object == "text_completion"
    assert VOCABULARY.fingerprint.startswith(reply.system_fingerprint or "-")
    assert reply.usage is not None
    prompt = len(server.target.encode(PROMPT))
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (prompt, 30)
    figures = reply.usage.model_extra["cosd"]
    assert figures["method"] == "greedy"
    assert 0 <= figures["acceptance"] <= 1
    parts = ("draft_seconds", "link_seconds", "verify_seconds", "overhead_seconds")
    assert sum(figures[part] for part in parts) == pytest.approx(
        30 / figures["tokens_per_second"], rel=0.01
    )


async def test_drafts_spare_the_server_calls(server: Serving, client: openai.AsyncOpenAI) -> None:
    # Short texts first: the control needs some to learn that drafting pays.
    with gateway(server.url, method="coupled") as gate:
        url = f"{gate.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as asked:
            reply = await asked.completions.create(
                model=MODEL, prompt=PROMPT, max_tokens=200, seed=1
            )
    assert reply.usage is not None
    figures = reply.usage.model_extra["cosd"]
    assert figures["acceptance"] > 0.3


async def test_chat(server: Serving, client: openai.AsyncOpenAI) -> None:
    messages: Any = [
        {"role": "developer", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "sea"}],
        },
    ]
    reply = await client.chat.completions.create(
        model=MODEL, messages=messages, seed=3, max_completion_tokens=20
    )
    text = reply.choices[0].message.content
    events = await client.chat.completions.create(
        model=MODEL,
        messages=messages,
        seed=3,
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
    )
    shown, reasons, last = "", [], None
    async for event in events:
        last = event
        for choice in event.choices:
            shown += choice.delta.content or ""
            reasons.append(choice.finish_reason)
    assert shown == text
    assert reasons[-1] == "length"
    assert last is not None
    assert last.usage is not None
    assert last.usage.completion_tokens == 20
    assert last.usage.model_extra["cosd"]["method"] == "coupled"


async def test_choices_and_prompts(server: Serving, client: openai.AsyncOpenAI) -> None:
    options: Any = {"model": MODEL, "prompt": [PROMPT, "the end"], "seed": 4, "n": 2}
    reply = await client.completions.create(**options, max_tokens=12)
    texts = [choice.text for choice in reply.choices]
    assert len(set(texts)) == 4
    assert texts[0] == await own_text(server, seed=4, max_tokens=12)
    streamed = [""] * 4
    async for event in await client.completions.create(**options, max_tokens=12, stream=True):
        streamed[event.choices[0].index] += event.choices[0].text
    assert streamed == texts
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 4 * 12
    prompts = len(server.target.encode(PROMPT)) + len(server.target.encode("the end"))
    assert reply.usage.prompt_tokens == prompts


async def test_stop_strings(server: Serving, client: openai.AsyncOpenAI) -> None:
    whole = await own_text(server, seed=1, max_tokens=60)
    stop = whole[20:23]
    wanted = await own_text(server, seed=1, max_tokens=60, stop=[stop])
    reply = await client.completions.create(
        model=MODEL, prompt=PROMPT, seed=1, max_tokens=60, stop=stop
    )
    assert reply.choices[0].text == wanted
    assert reply.choices[0].finish_reason == "stop"
    assert len(wanted) < len(whole)


async def test_requests_wait_for_the_draft(server: Serving, client: openai.AsyncOpenAI) -> None:
    async def one(seed: int) -> str:
        reply = await client.completions.create(
            model=MODEL, prompt=PROMPT, seed=seed, max_tokens=15
        )
        return reply.choices[0].text

    together = await asyncio.gather(*map(one, range(6)))
    assert together == [await one(seed) for seed in range(6)]


async def test_without_a_draft(server: Serving) -> None:
    with gateway(server.url, draft=None, method="autoregressive") as gate:
        url = f"{gate.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as asked:
            reply = await asked.completions.create(model=MODEL, prompt=PROMPT, temperature=0)
    wanted = await own_text(server, max_tokens=16, sampling=GREEDY)
    assert reply.choices[0].text == wanted


async def test_models_and_health(gate: Gateway, client: openai.AsyncOpenAI) -> None:
    listed = await client.models.list()
    assert [model.id for model in listed.data] == [MODEL, "gpt-toy"]
    assert (await client.models.retrieve("gpt-toy")).id == "gpt-toy"
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-5'"):
        await client.models.retrieve("gpt-5")
    health = await client.get("../health", cast_to=object)
    assert health == {"status": "ok", "drafts": 1, "writing": 0, "requests": 0}


async def test_two_drafts_write_two_texts_at_once(server: Serving) -> None:
    with gateway(server.url, drafts=2) as gate:
        url = f"{gate.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as asked:
            options: Any = {"model": MODEL, "prompt": PROMPT, "max_tokens": 4000, "stream": True}
            one = await asked.completions.create(**options)
            two = await asked.completions.create(**options)
            for _ in range(5):
                await anext(aiter(one))
                await anext(aiter(two))
            assert gate.pool.writing == 2
            await one.close()
            await two.close()
            await until(lambda: gate.pool.requests == 0)


async def test_a_reader_that_does_not_read_keeps_no_draft(server: Serving) -> None:
    with gateway(server.url, method="coupled") as gate:
        url = f"{gate.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as asked:
            lazy = await asked.completions.create(
                model=MODEL, prompt=PROMPT, max_tokens=400, stream=True
            )
            await until(lambda: gate.pool.writing == 0, seconds=20)
            reply = await asked.completions.create(model=MODEL, prompt=PROMPT, max_tokens=3)
            assert reply.choices
            assert len([event async for event in lazy]) > 5
