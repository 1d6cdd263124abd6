"""`/v1/chat/completions` with OpenAI's client."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from harness.serving import Serving, connected, serving, target_table, toy_target

from edge_sdk.chat import Message

MODEL = "toy"
ASK: list[Any] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "the sea?"},
    {"role": "assistant", "content": "blue"},
    {"role": "user", "content": "and the land?"},
]
TURNS = [Message(turn["role"], turn["content"]) for turn in ASK]


async def test_reply_is_the_text_of_the_sdk(
    server: Serving, async_client: openai.AsyncOpenAI
) -> None:
    async with connected(server, api_key="key-of-one") as sdk:
        stream = sdk.generate(messages=TURNS, method="autoregressive", seed=6, max_tokens=25)
        async for _ in stream:
            pass
    reply = await async_client.chat.completions.create(
        model=MODEL, messages=ASK, seed=6, max_completion_tokens=25
    )
    assert reply.id.startswith("chatcmpl-")
    assert reply.object == "chat.completion"
    message = reply.choices[0].message
    assert (message.role, message.content, message.refusal) == ("assistant", stream.text, None)
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == len(server.target.render(TURNS))


def test_stream(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": MODEL, "messages": ASK, "seed": 6, "max_tokens": 25, "n": 2}
    whole = client.chat.completions.create(**options)
    events = list(
        client.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}
        )
    )
    usage = events.pop().usage
    assert usage is not None
    assert usage == whole.usage
    for index, choice in enumerate(whole.choices):
        mine = [event.choices[0] for event in events if event.choices[0].index == index]
        assert mine[0].delta.role == "assistant"
        assert all(part.delta.role is None for part in mine[1:])
        assert "".join(part.delta.content or "" for part in mine) == choice.message.content
        assert [part.finish_reason for part in mine[-2:]] == [None, "length"]
    assert {event.object for event in events} == {"chat.completion.chunk"}


def test_parts_and_developers(
    server: Serving, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[Any] = []
    render = server.target.render

    def noted(messages: Any) -> list[int]:
        rendered.append(list(messages))
        return render(messages)

    monkeypatch.setattr(server.target, "render", noted)
    parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "sea"}]
    messages: Any = [{"role": "developer", "content": "be brief"}, {"role": "user"}]
    messages[1]["content"] = parts
    client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1)
    assert rendered == [[Message("system", "be brief"), Message("user", "the sea")]]


def test_a_reply_can_be_sent_back(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=5)
    echoed: Any = reply.choices[0].message.model_dump()
    more = [*ASK, echoed, {"role": "user", "content": "go on"}]
    assert client.chat.completions.create(model=MODEL, messages=more, max_tokens=5).choices


@pytest.fixture(scope="module")
def small() -> Any:
    with serving(lambda: toy_target(context=64), model_aliases=("gpt",)) as running:
        yield running


def test_a_chat_goes_on_to_the_end_of_the_context(small: Serving) -> None:
    with openai.OpenAI(base_url=f"{small.url}/v1", api_key="any", max_retries=0) as client:
        reply = client.chat.completions.create(model="gpt", messages=ASK[1:2])
    assert reply.usage is not None
    assert reply.usage.total_tokens == 64
    assert reply.choices[0].finish_reason == "length"


def test_an_end_token_is_a_stop() -> None:
    with (
        serving(lambda: toy_target(target_table(end=3.0))) as ending,
        openai.OpenAI(base_url=f"{ending.url}/v1", api_key="any", max_retries=0) as client,
    ):
        reply = client.chat.completions.create(
            model=MODEL, messages=ASK, max_tokens=500, temperature=1
        )
        assert reply.choices[0].finish_reason == "stop"
        assert reply.usage is not None
        # The end token is one of those generated, and no part of the text.
        assert 1 <= reply.usage.completion_tokens < 500


def test_a_model_without_a_template() -> None:
    def target() -> Any:
        made = toy_target()
        made._chat = False
        return made

    with (
        serving(target) as mute,
        openai.OpenAI(base_url=f"{mute.url}/v1", api_key="any", max_retries=0) as client,
        pytest.raises(openai.BadRequestError) as caught,
    ):
        client.chat.completions.create(model=MODEL, messages=ASK)
    assert caught.value.code == "no_chat_template"
    assert caught.value.param == "messages"
