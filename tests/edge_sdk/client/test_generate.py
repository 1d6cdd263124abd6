"""Texts over HTTP on the toy pair."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.serving import (
    GREEDY,
    PROMPT,
    TABLE,
    VOCABULARY,
    Faults,
    Serving,
    connected,
    greedy_ids,
    other_draft,
    related_draft,
    serving,
    target_table,
    toy_target,
    until,
)

from edge_sdk import EdgeClient, Message, Origin, Sampling
from edge_sdk.chat import plain_rendering
from edge_sdk.draft.toy import ToyDraft

TOKENS = 40
DRAFTS = {"related": related_draft, "other vocabulary": other_draft}


async def text_of(client: EdgeClient, prompt: str | None = PROMPT, **options: object) -> list[int]:
    async with client.generate(prompt, **options) as stream:  # type: ignore[arg-type]
        async for _ in stream:
            pass
    assert stream.stats.tokens == len(stream.tokens)
    return [token.id for token in stream.tokens]


@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS.keys())
@pytest.mark.parametrize("gamma", [1, 3, 7])
@pytest.mark.parametrize("method", ["greedy", "hybrid"])
async def test_greedy_text_is_the_targets_own(
    server: Serving, method: str, gamma: int, draft: Callable[[], ToyDraft]
) -> None:
    async with connected(server, draft()) as client:
        stream = client.generate(
            PROMPT, method=method, sampling=GREEDY, max_tokens=TOKENS, gamma=gamma
        )
        text = "".join([piece.text async for piece in stream])
    expected = greedy_ids(server.target, PROMPT, TOKENS)
    assert [token.id for token in stream.tokens] == expected
    written = b"".join(VOCABULARY.pieces[token] for token in expected)
    assert text == stream.text == written.decode("utf-8", "replace")
    assert stream.finish == "length"
    stats = stream.stats
    assert stats.tokens == TOKENS
    assert 0.2 < stats.acceptance < 1
    assert stats.examined <= stats.drafted
    assert stats.target_calls == stats.rounds < TOKENS
    assert stats.accepted == sum(token.origin == Origin.ACCEPTED for token in stream.tokens)
    assert stats.up_bytes > 0
    assert stats.wire_up_bytes > stats.up_bytes
    assert stats.wire_down_bytes > stats.down_bytes > 0
    assert stats.seconds > 0
    assert stats.server_seconds > 0


async def test_texts_with_a_token_outside_the_common_vocabulary(server: Serving) -> None:
    async with connected(server, other_draft()) as client:
        ids = await text_of(client, method="greedy", max_tokens=TOKENS)
        ranks = client.alignment.rank_of_target[ids]
    assert (ranks < 0).any()
    assert ids == greedy_ids(server.target, PROMPT, TOKENS)


@pytest.mark.parametrize("method", ["hybrid", "autoregressive"])
async def test_a_seed_repeats_a_text_and_another_does_not(server: Serving, method: str) -> None:
    async with connected(server, related_draft()) as client:
        texts = [
            await text_of(client, method=method, seed=seed, max_tokens=30, gamma=3)
            for seed in (1, 1, 2)
        ]
        fresh = client.generate(PROMPT, method=method)
    assert texts[0] == texts[1] != texts[2]
    assert 0 <= fresh.seed < 2**64


async def test_autoregressive_needs_no_draft_and_hybrid_says_so(server: Serving) -> None:
    from edge_sdk.errors import InvalidRequest

    async with connected(server) as client:
        assert len(await text_of(client, method="autoregressive", max_tokens=9)) == 9
        with pytest.raises(InvalidRequest, match="no draft model"):
            client.generate(PROMPT)


@pytest.mark.parametrize("plan", [["cut"], ["lose", "cut"], ["refuse", "cut", "cut"]])
async def test_autoregressive_goes_on_after_a_broken_stream(
    server: Serving, plan: list[str]
) -> None:
    async with connected(server) as client:
        whole = await text_of(client, method="autoregressive", seed=3, max_tokens=30)
    faults = Faults("/generate", list(plan))
    async with connected(server, faults=faults) as client:
        assert await text_of(client, method="autoregressive", seed=3, max_tokens=30) == whole
    assert faults.seen > len(plan)


async def test_autoregressive_goes_on_in_a_new_session(server: Serving) -> None:
    async with connected(server) as client:
        whole = await text_of(client, method="autoregressive", seed=3, max_tokens=30)
        stream = client.generate(PROMPT, method="autoregressive", seed=3, max_tokens=30)
        async for _ in stream:
            if len(stream.tokens) == 7:
                await client.transport.close_session(stream._session.session_id)
    assert [token.id for token in stream.tokens] == whole
    assert stream.stats.reopened == 1


@pytest.mark.parametrize("method", ["greedy", "hybrid", "autoregressive"])
@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_max_tokens_is_exact(server: Serving, method: str, limit: int) -> None:
    async with connected(server, related_draft()) as client:
        stream = client.generate(PROMPT, method=method, max_tokens=limit, gamma=3, seed=1)
        assert sum([len(piece.tokens) async for piece in stream]) == limit
    assert stream.finish == "length"


@pytest.mark.parametrize("method", ["greedy", "autoregressive"])
async def test_a_stop_string_ends_the_text_before_it(server: Serving, method: str) -> None:
    async with connected(server, related_draft()) as client:
        free = client.generate(PROMPT, method=method, sampling=GREEDY, max_tokens=TOKENS)
        async for _ in free:
            pass
        for start in (7, 12, 20):
            stop = free.text[start : start + 4]
            stream = client.generate(
                PROMPT, method=method, sampling=GREEDY, max_tokens=TOKENS, stop=[stop, "\x00"]
            )
            seen = ""
            async for piece in stream:
                seen += piece.text
                assert stop not in seen
            assert seen == free.text[: free.text.index(stop)]
            assert stream.finish == "stop"


@pytest.mark.parametrize("method", ["greedy", "hybrid", "autoregressive"])
async def test_an_end_token_ends_the_text(method: str) -> None:
    table = target_table(end=1.5)
    with serving(lambda: toy_target(table)) as server:
        draft = ToyDraft.from_table(VOCABULARY, table.blended(TABLE, 0.7))
        async with connected(server, draft) as client:
            for seed in range(4):
                sampling = Sampling(temperature=0.0 if method == "greedy" else 1.0)
                stream = client.generate(
                    PROMPT, method=method, seed=seed, sampling=sampling, max_tokens=400, gamma=4
                )
                async for _ in stream:
                    pass
                ids = [token.id for token in stream.tokens]
                assert stream.finish == "end"
                assert ids[-1] in VOCABULARY.end_ids
                assert not VOCABULARY.end_ids.intersection(ids[:-1])
                assert stream.tokens[-1].data == b""


async def test_the_end_of_the_context_ends_the_text() -> None:
    with serving(lambda: toy_target(context=40)) as server:
        count = 40 - len(server.target.encode(PROMPT))
        for method in ("greedy", "autoregressive"):
            async with connected(server, related_draft()) as client:
                stream = client.generate(PROMPT, method=method, sampling=GREEDY, gamma=5)
                async for _ in stream:
                    pass
            assert stream.finish == "context"
            assert [t.id for t in stream.tokens] == greedy_ids(server.target, PROMPT, count)


@pytest.mark.parametrize("context", [8, 25, 31])
async def test_a_short_draft_context_ends_drafting_and_not_the_text(
    server: Serving, context: int
) -> None:
    async with connected(server, related_draft(context=context)) as client:
        stream = client.generate(PROMPT, method="greedy", max_tokens=TOKENS)
        async for _ in stream:
            pass
    assert [token.id for token in stream.tokens] == greedy_ids(server.target, PROMPT, TOKENS)
    assert stream.stats.drafted < TOKENS
    assert stream.finish == "length"


async def test_chats_and_ids_are_prompts_too(server: Serving) -> None:
    chat = [Message("user", "hello")]
    async with connected(server, related_draft()) as client:
        said = await text_of(client, None, messages=chat, method="greedy", max_tokens=9)
        ids = server.target.encode(PROMPT)
        by_ids = await text_of(client, None, prompt_ids=ids, method="greedy", max_tokens=9)
    assert said == greedy_ids(server.target, plain_rendering(chat), 9)
    assert by_ids == greedy_ids(server.target, PROMPT, 9)


async def test_two_texts_at_once_on_one_client(server: Serving) -> None:
    import asyncio

    async with connected(server, related_draft()) as client:
        texts = await asyncio.gather(
            *[
                text_of(client, prompt, method=method, sampling=GREEDY, max_tokens=20)
                for prompt in (PROMPT, "of the end")
                for method in ("greedy", "autoregressive", "hybrid")
            ]
        )
    for prompt, group in ((PROMPT, texts[:3]), ("of the end", texts[3:])):
        assert all(ids == greedy_ids(server.target, prompt, 20) for ids in group)


async def test_two_clients_at_once_on_one_server(server: Serving) -> None:
    import asyncio

    async def one(draft: ToyDraft, prompt: str) -> list[int]:
        async with connected(server, draft) as client:
            return await text_of(client, prompt, method="greedy", max_tokens=30)

    prompts = [PROMPT, "in and of", "to the sea", "ering."]
    drafts = [related_draft(), other_draft(), related_draft(), other_draft()]
    texts = await asyncio.gather(*map(one, drafts, prompts))
    assert texts == [greedy_ids(server.target, prompt, 30) for prompt in prompts]


async def test_sessions_are_closed_after_the_text(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        await text_of(client, max_tokens=5)
        await text_of(client, max_tokens=5, method="autoregressive")
    await until(lambda: server.sessions == 0 and server.sequences == 0)
