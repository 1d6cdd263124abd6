"""Whole texts, options that do not exist, and the method that is chosen."""

from __future__ import annotations

import dataclasses

import pytest
from harness.serving import GREEDY, PROMPT, Faults, Serving, connected, greedy_ids, related_draft

from edge_sdk import EdgeClient, Message, Sampling
from edge_sdk.errors import ConnectionFailed, InvalidRequest

TOKENS = 30


@pytest.mark.parametrize("method", ["greedy", "autoregressive"])
async def test_a_whole_text(server: Serving, method: str) -> None:
    async with connected(server, related_draft()) as client:
        result = await client.complete(PROMPT, method=method, sampling=GREEDY, max_tokens=TOKENS)
        stream = client.generate(PROMPT, method=method, sampling=GREEDY, max_tokens=TOKENS)
        text = "".join([piece.text async for piece in stream])
    assert [token.id for token in result.tokens] == greedy_ids(server.target, PROMPT, TOKENS)
    assert result.text == str(result) == text
    assert result.finish == "length"
    assert result.stats.tokens == TOKENS
    assert result.stats.prompt_tokens == len(server.target.encode(PROMPT))
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.text = ""  # type: ignore[misc]


async def test_a_result_repeats_by_its_seed(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        chat = [Message("user", "hello")]
        one = await client.complete(messages=chat, gamma=3, max_tokens=20)
        two = await client.complete(messages=chat, gamma=3, max_tokens=20, seed=one.seed)
        ids = await client.complete(prompt_ids=server.target.encode("a"), max_tokens=3)
    assert one.tokens == two.tokens
    assert len(ids.tokens) == 3


async def test_the_rest_of_a_text_that_was_begun(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        stream = client.generate(PROMPT, method="greedy", max_tokens=TOKENS)
        await anext(stream)
        result = await stream.result()
        assert [token.id for token in result.tokens] == greedy_ids(server.target, PROMPT, TOKENS)
        assert await stream.result() == result
        left = client.generate(PROMPT, max_tokens=TOKENS)
        async for _ in left:
            break
        with pytest.raises(InvalidRequest, match="left before it was complete"):
            await left.result()


async def test_a_fault_is_raised(server: Serving) -> None:
    faults = Faults("/verify", ["ok"] + ["refuse"] * 3)
    async with connected(server, related_draft(), faults=faults) as client:
        with pytest.raises(ConnectionFailed, match="is the server running"):
            await client.complete(PROMPT, max_tokens=TOKENS, gamma=2)


@pytest.mark.parametrize("call", ["generate", "complete", "conversation"])
async def test_an_argument_that_does_not_exist(server: Serving, call: str) -> None:
    async with connected(server, related_draft()) as client:
        prompt = {} if call == "conversation" else {"prompt": PROMPT}

        async def made() -> None:
            value = getattr(client, call)(**prompt, temperature=0.7)
            if call == "complete":
                await value

        with pytest.raises(InvalidRequest, match=r"no argument 'temperature'.*Sampling") as caught:
            await made()
        assert caught.value.field == "temperature"


async def test_auto_takes_a_lossless_method_when_the_text_begins(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        sampled = await client.complete(PROMPT, method="auto", max_tokens=TOKENS)
        assert sampled.stats.method in ("hybrid", "candidates", "coupled")
        first = client.generate(
            PROMPT, method="auto", sampling=Sampling(temperature=0), max_tokens=TOKENS
        )
        assert first.stats.method == "auto"
        greedy = await first.result()
        assert greedy.stats.method == "greedy"
        fixed = await client.complete(PROMPT, method="auto", gamma=2, max_tokens=TOKENS)
        assert fixed.stats.method in ("hybrid", "candidates", "coupled")
    assert [token.id for token in greedy.tokens] == greedy_ids(server.target, PROMPT, TOKENS)


async def test_auto_takes_only_what_the_server_offers(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server, related_draft()) as client:
        await client.connect()
        only = dataclasses.replace(client.card, methods=("coupled", "consultant"))
        monkeypatch.setattr(client, "_card", only)
        result = await client.complete(PROMPT, method="auto", max_tokens=5)
    assert result.stats.method == "coupled"


async def test_what_is_passed_for_on_round() -> None:
    client = EdgeClient("http://127.0.0.1:9", draft=related_draft(), cache=None)
    with pytest.raises(InvalidRequest, match="takes a Round"):
        client.generate(PROMPT, on_round=3)  # type: ignore[arg-type]
    await client.aclose()
