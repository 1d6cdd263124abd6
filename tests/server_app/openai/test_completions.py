"""`/v1/completions` with OpenAI's client: the texts are those of the SDK."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import openai
import pytest
from harness.own_texts import SAMPLINGS, own_text
from harness.raw import KEY
from harness.serving import GREEDY, PROMPT, VOCABULARY, Serving, greedy_ids

from edge_sdk import Sampling

MODEL = "toy"
sdk_text = partial(own_text, api_key=KEY)


@pytest.mark.parametrize(("given", "extra"), SAMPLINGS)
async def test_a_seed_gives_the_text_that_the_sdk_gets(
    server: Serving,
    async_client: openai.AsyncOpenAI,
    given: dict[str, Any],
    extra: dict[str, Any],
) -> None:
    wanted = await sdk_text(server, seed=77, max_tokens=40, sampling=Sampling(**given, **extra))
    reply = await async_client.completions.create(
        model=MODEL, prompt=PROMPT, seed=77, max_tokens=40, extra_body=extra, **given
    )
    assert reply.choices[0].text == wanted
    pieces = await async_client.completions.create(
        model=MODEL, prompt=PROMPT, seed=77, max_tokens=40, stream=True, extra_body=extra, **given
    )
    assert "".join([piece.choices[0].text async for piece in pieces]) == wanted


def test_reply(server: Serving, client: openai.OpenAI) -> None:
    reply = client.completions.create(model="gpt-toy", prompt=PROMPT, temperature=0, max_tokens=9)
    choice = reply.choices[0]
    ids = greedy_ids(server.target, PROMPT, 9)
    assert choice.text == b"".join(VOCABULARY.pieces[i] for i in ids).decode()
    assert choice.finish_reason == "length"
    assert choice.logprobs is None
    assert reply.id.startswith("cmpl-")
    assert reply.object == "text_completion"
    assert reply.model == MODEL
    assert VOCABULARY.fingerprint.startswith(reply.system_fingerprint or "-")
    assert reply.usage is not None
    prompt = len(server.target.encode(PROMPT))
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (prompt, 9)
    assert reply.usage.total_tokens == prompt + 9


def test_default_length(client: openai.OpenAI) -> None:
    reply = client.completions.create(model=MODEL, prompt=PROMPT)
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 16
    reply = client.completions.create(
        model=MODEL, prompt=PROMPT, extra_body={"max_completion_tokens": 3}
    )
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 3


def test_fields_that_are_null_or_neutral_are_as_left_out(client: openai.OpenAI) -> None:
    nulls = dict.fromkeys(
        [
            "best_of",
            "echo",
            "frequency_penalty",
            "logit_bias",
            "logprobs",
            "max_tokens",
            "min_p",
            "n",
            "presence_penalty",
            "repetition_penalty",
            "stop",
            "stream",
            "stream_options",
            "suffix",
            "temperature",
            "top_k",
            "top_p",
            "user",
        ]
    )
    plain = client.completions.create(model=MODEL, prompt=PROMPT, seed=5)
    null = client.completions.create(model=MODEL, prompt=PROMPT, seed=5, extra_body=nulls)
    neutral = client.completions.create(
        model=MODEL,
        prompt=PROMPT,
        seed=5,
        best_of=1,
        echo=False,
        frequency_penalty=0.0,
        presence_penalty=0,
        logit_bias={},
        suffix="",
        user="somebody",
    )
    assert plain.choices[0].text == null.choices[0].text == neutral.choices[0].text


def test_forms_of_prompts(server: Serving, client: openai.OpenAI) -> None:
    def texts(prompt: Any) -> list[str]:
        reply = client.completions.create(model=MODEL, prompt=prompt, seed=9, max_tokens=8)
        assert [choice.index for choice in reply.choices] == list(range(len(reply.choices)))
        return [choice.text for choice in reply.choices]

    ids, other = server.target.encode(PROMPT), server.target.encode("the end")
    one, two = texts(PROMPT), texts("the end")
    assert one != two
    assert texts(ids) == one
    assert texts([ids]) == one
    assert texts([PROMPT, "the end"]) == one + two
    assert texts([ids, other]) == one + two
    assert texts([PROMPT, other]) == one + two


async def test_choices(server: Serving, async_client: openai.AsyncOpenAI) -> None:
    reply = await async_client.completions.create(
        model=MODEL, prompt=[PROMPT, "the end"], seed=4, n=3, max_tokens=12
    )
    texts = [choice.text for choice in reply.choices]
    assert len(set(texts)) == 6
    assert texts[0] == await sdk_text(server, seed=4, max_tokens=12)
    assert texts[3] == await sdk_text(server, "the end", seed=4, max_tokens=12)
    again = await async_client.completions.create(
        model=MODEL, prompt=[PROMPT, "the end"], seed=4, n=3, max_tokens=12
    )
    assert [choice.text for choice in again.choices] == texts
    assert reply.usage is not None
    prompts = len(server.target.encode(PROMPT)) + len(server.target.encode("the end"))
    assert reply.usage.prompt_tokens == prompts
    assert reply.usage.completion_tokens == 6 * 12
    streamed = [""] * 6
    events = await async_client.completions.create(
        model=MODEL, prompt=[PROMPT, "the end"], seed=4, n=3, max_tokens=12, stream=True
    )
    async for event in events:
        streamed[event.choices[0].index] += event.choices[0].text
    assert streamed == texts


def test_choices_share_the_pass_over_their_prompt(
    server: Serving, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = 0
    forward = server.target.forward

    def counted(chunks: Any) -> Any:
        nonlocal computed
        computed += sum(len(chunk.token_ids) for chunk in chunks)
        return forward(chunks)

    monkeypatch.setattr(server.target, "forward", counted)
    reply = client.completions.create(model=MODEL, prompt="the sea " * 60, n=8, max_tokens=12)
    assert reply.usage is not None
    assert reply.usage.prompt_tokens > 200
    # The last tokens that are no whole block of the cache are computed for each.
    assert computed < reply.usage.prompt_tokens + reply.usage.completion_tokens + 8 * 20


def test_without_a_seed_texts_differ(client: openai.OpenAI) -> None:
    reply = client.completions.create(model=MODEL, prompt=PROMPT, n=4)
    again = client.completions.create(model=MODEL, prompt=PROMPT, n=4)
    assert len({choice.text for choice in [*reply.choices, *again.choices]}) == 8


def test_stream_ends_with_the_usage_if_asked(client: openai.OpenAI) -> None:
    plain = list(
        client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=5, seed=2, stream=True)
    )
    assert [event.choices[0].finish_reason for event in plain] == [None] * 4 + ["length"]
    assert all("usage" not in event.model_fields_set for event in plain)
    assert len({event.id for event in plain}) == 1
    events = list(
        client.completions.create(
            model=MODEL,
            prompt=PROMPT,
            max_tokens=5,
            seed=2,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert all(event.usage is None for event in events[:-1])
    last = events[-1]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 5


async def test_stop_strings_are_never_shown(
    server: Serving, async_client: openai.AsyncOpenAI
) -> None:
    whole = await sdk_text(server, seed=1, max_tokens=60)
    for stop in (whole[10:13], [whole[20:26], "\0 never"], [whole[-1]], whole[:2]):
        wanted = await sdk_text(
            server, seed=1, max_tokens=60, stop=[stop] if isinstance(stop, str) else stop
        )
        reply = await async_client.completions.create(
            model=MODEL, prompt=PROMPT, seed=1, max_tokens=60, stop=stop
        )
        assert reply.choices[0].text == wanted
        assert len(wanted) < len(whole)
        assert reply.choices[0].finish_reason == "stop"
        assert reply.usage is not None
        events = await async_client.completions.create(
            model=MODEL, prompt=PROMPT, seed=1, max_tokens=60, stop=stop, stream=True
        )
        shown = ""
        reasons = []
        async for event in events:
            shown += event.choices[0].text
            reasons.append(event.choices[0].finish_reason)
            assert wanted.startswith(shown)
        assert shown == wanted
        assert reasons[-1] == "stop"
    held = await async_client.completions.create(
        model=MODEL, prompt=PROMPT, seed=1, max_tokens=60, stop=whole[-1] + "and more"
    )
    assert held.choices[0].text == whole
    assert held.choices[0].finish_reason == "length"


async def test_concurrent_requests_give_the_texts_of_running_alone(
    server: Serving, async_client: openai.AsyncOpenAI
) -> None:
    async def one(seed: int) -> str:
        reply = await async_client.completions.create(
            model=MODEL, prompt=f"{PROMPT} {seed}", seed=seed, max_tokens=30
        )
        return reply.choices[0].text

    async def streamed(seed: int) -> str:
        events = await async_client.completions.create(
            model=MODEL, prompt=f"{PROMPT} {seed}", seed=seed, max_tokens=30, stream=True
        )
        return "".join([event.choices[0].text async for event in events])

    alone = [await one(seed) for seed in range(8)]
    together = await asyncio.gather(*map(one, range(8)), *map(streamed, range(8)))
    assert together == alone + alone


async def test_greedy_has_no_need_of_a_seed(
    server: Serving, async_client: openai.AsyncOpenAI
) -> None:
    wanted = await sdk_text(server, max_tokens=20, sampling=GREEDY)
    reply = await async_client.completions.create(
        model=MODEL, prompt=PROMPT, temperature=0, n=2, max_tokens=20
    )
    assert [choice.text for choice in reply.choices] == [wanted, wanted]
