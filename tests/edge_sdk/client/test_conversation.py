"""Chats: the same text as a fresh client's, and nothing computed twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from harness.serving import (
    PROMPT,
    Faults,
    Serving,
    connected,
    related_draft,
    serving,
    toy_target,
    until,
)

from edge_sdk import Conversation, EdgeClient, Message
from edge_sdk.errors import InvalidRequest, NoChatTemplate

SAID = ["of the sea", "to the end", "a toy"]
SYSTEM = "in and of the sea, " * 8
TOKENS = 24


class CountedDraft:
    """A draft and how many ids it was given."""

    def __init__(self) -> None:
        self.draft = related_draft()
        self.ids = 0
        append = self.draft.append

        def counted(ids: Sequence[int]) -> None:
            self.ids += len(ids)
            append(ids)

        self.draft.append = counted  # type: ignore[method-assign]


async def fresh(server: Serving, messages: Sequence[Message], **options: Any) -> list[int]:
    async with connected(server, related_draft()) as client:
        result = await client.complete(messages=messages, max_tokens=TOKENS, **options)
    return [token.id for token in result.tokens]


@pytest.mark.parametrize("transport", ["http", "websocket"])
@pytest.mark.parametrize(("gamma", "window"), [(3, None), (2, 4)])
@pytest.mark.parametrize("method", ["greedy", "coupled", "hybrid"])
async def test_every_turn_is_the_text_of_a_fresh_client(
    server: Serving, method: str, gamma: int, window: int | None, transport: str
) -> None:
    options: dict[str, Any] = {"method": method, "gamma": gamma, "window": window}
    async with (
        connected(server, related_draft(), transport=transport) as client,
        client.conversation(system=SYSTEM, max_tokens=TOKENS, **options) as chat,
    ):
        for seed, said in enumerate(SAID):
            before = [*chat.messages, Message("user", said)]
            turn = chat.say(said, seed=seed)
            text = "".join([piece.text async for piece in turn])
            ids = [token.id for token in turn.tokens]
            # With blocks in flight `hybrid` is not a function of the seed alone.
            if method != "hybrid" or window is None:
                assert ids == await fresh(server, before, seed=seed, **options)
            assert chat.messages == (*before, Message("assistant", text))
            assert turn.stats.reopened == 0
            if seed:
                # The server knew the chat so far, and the words of the new turn are all it read.
                assert turn.stats.reused_tokens > turn.stats.prompt_tokens // 2
    await until(lambda: server.sessions == 0)


@pytest.mark.parametrize("method", ["greedy", "autoregressive"])
async def test_a_turn_computes_what_is_new(method: str) -> None:
    with serving() as server:
        counted = CountedDraft()
        computed: list[int] = []
        forward = server.target.forward

        def counting(chunks: Any) -> Any:
            computed.append(sum(len(chunk.token_ids) for chunk in chunks))
            return forward(chunks)

        server.target.forward = counting  # type: ignore[method-assign]
        async with (
            connected(server, counted.draft) as client,
            client.conversation(
                system=SYSTEM, method=method, sampling=None, max_tokens=TOKENS, gamma=3
            ) as chat,
        ):
            await chat.ask(SAID[0])
            prompt = len(server.target.render(chat.messages))
            assert sum(computed) >= prompt - TOKENS
            for said in SAID[1:]:
                computed.clear()
                counted.ids = 0
                result = await chat.ask(said)
                stats = result.stats
                new = stats.prompt_tokens - stats.reused_tokens
                # What was drafted is computed on both sides, and one id a call besides.
                work = stats.drafted + stats.target_calls + TOKENS
                assert sum(computed) <= new + work < prompt
                assert new < TOKENS + 40
                if method == "greedy":
                    assert counted.ids <= new + work < prompt


async def test_a_stop_string_cuts_the_text_on_the_server_too(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        whole = await client.complete(
            messages=[Message("user", SAID[0])], method="greedy", max_tokens=60
        )
        stop = whole.text[20:23]
        async with client.conversation(
            method="greedy", max_tokens=60, gamma=4, stop=[stop]
        ) as chat:
            turn = chat.say(SAID[0])
            first = await turn.result()
            assert first.finish == "stop"
            assert first.text == whole.text[: whole.text.index(stop)]
            assert turn.tokens_kept < len(first.tokens)
            (session,) = [held.session for held in held_by(server)]
            await until(lambda: len(session.generated) == turn.tokens_kept)
            second = await chat.ask(SAID[1], stop=())
            assert second.stats.reopened == 0
            assert second.stats.reused_tokens > 20
            before = [*chat.messages[:-1]]
        alone = await client.complete(messages=before, method="greedy", max_tokens=60)
    assert second.text == alone.text


def held_by(server: Serving) -> list[Any]:
    return list(server.app.state.host._sessions._held.values())


@pytest.mark.parametrize("when", ["between", "within", "restart"])
@pytest.mark.parametrize("method", ["greedy", "coupled", "autoregressive"])
async def test_a_lost_session_is_opened_again(method: str, when: str) -> None:
    with serving() as server:
        async with (
            connected(server, related_draft()) as client,
            client.conversation(method=method, gamma=3, max_tokens=TOKENS) as chat,
        ):
            for seed, said in enumerate(SAID):
                before = [*chat.messages, Message("user", said)]
                turn = chat.say(said, seed=seed)
                async for _ in turn:
                    if when == "within":
                        await client.transport.close_session(turn._session.session_id)
                assert turn.finish == "length"
                async with connected(server, related_draft()) as other:
                    alone = await other.complete(
                        messages=before, method=method, gamma=3, max_tokens=TOKENS, seed=seed
                    )
                assert [t.id for t in turn.tokens] == [t.id for t in alone.tokens]
                if when == "between":
                    await client.transport.close_session(turn._session.session_id)
                elif when == "restart":
                    await asyncio.to_thread(server.restart)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("method", ["hybrid", "greedy", "autoregressive"])
async def test_a_turn_that_is_left_is_not_said(
    server: Serving, method: str, window: int | None
) -> None:
    async with (
        connected(server, related_draft()) as client,
        client.conversation(method=method, gamma=3, window=window, max_tokens=TOKENS) as chat,
    ):
        await chat.ask(SAID[0])
        before = chat.messages
        async for _ in chat.say(SAID[1]):
            break
        assert chat.messages == before
        async with asyncio.timeout(5):
            result = await chat.ask(SAID[2])
            assert result.finish == "length"
        assert chat.messages[:2] == before
        assert [message.content for message in chat.messages[2:]] == [SAID[2], result.text]
        read = chat.say(SAID[1], max_tokens=3000)
        task = asyncio.create_task(read.result())
        await until(lambda: len(read.tokens) > 2)
        with pytest.raises(InvalidRequest, match="turn before is not over"):
            chat.say("no")
        with pytest.raises(InvalidRequest, match="under way"):
            chat.undo()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(chat.messages) == 4
        assert (await chat.ask(SAID[1])).finish == "length"


async def test_undo(server: Serving) -> None:
    async with (
        connected(server, related_draft()) as client,
        client.conversation(system="of", method="greedy", max_tokens=TOKENS) as chat,
    ):
        with pytest.raises(InvalidRequest, match="no turn"):
            chat.undo()
        first = await chat.ask(SAID[0])
        await chat.ask(SAID[1])
        assert chat.undo()[0] == Message("user", SAID[1])
        assert [message.role for message in chat.messages] == ["system", "user", "assistant"]
        other = await chat.ask(SAID[2])
        assert other.stats.reused_tokens > len(server.target.encode(SAID[0] + first.text)) // 2
        before = chat.messages[:-1]
    assert [token.id for token in other.tokens] == await fresh(server, before, method="greedy")


async def test_a_conversation_goes_on_from_messages(server: Serving) -> None:
    told = [Message("user", "a"), Message("assistant", "of the sea")]
    async with (
        connected(server, related_draft()) as client,
        client.conversation(messages=told, method="greedy", max_tokens=TOKENS) as chat,
    ):
        result = await chat.ask("to")
    expected = await fresh(server, [*told, Message("user", "to")], method="greedy")
    assert [token.id for token in result.tokens] == expected


async def test_a_fault_leaves_the_conversation_as_it_was(server: Serving) -> None:
    faults = Faults("/verify", ["ok"] * 3 + ["refuse"] * 3)
    async with (
        connected(server, related_draft(), faults=faults) as client,
        client.conversation(method="greedy", gamma=2, max_tokens=TOKENS) as chat,
    ):
        from edge_sdk.errors import ConnectionFailed

        with pytest.raises(ConnectionFailed):
            await chat.ask(SAID[0])
        assert chat.messages == ()
        result = await chat.ask(SAID[0])
    expected = await fresh(server, [Message("user", SAID[0])], method="greedy")
    assert [token.id for token in result.tokens] == expected


async def test_two_conversations_of_one_client(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        chats = [client.conversation(method="greedy", max_tokens=9) for _ in range(2)]
        for said in SAID:
            for chat in chats:
                await chat.ask(said)
        assert chats[0].messages == chats[1].messages
        assert server.sessions == 2
    # They ended with their client.
    with pytest.raises(InvalidRequest, match="conversation is closed"):
        chats[0].say("more")
    await until(lambda: server.sessions == 0)


async def test_a_model_without_a_chat_template() -> None:
    def mute() -> Any:
        target = toy_target()
        target._chat = False
        return target

    with serving(mute) as server:
        async with connected(server, related_draft()) as client, client.conversation() as chat:
            with pytest.raises(NoChatTemplate):
                await chat.ask("hello")


@pytest.mark.parametrize(
    ("arguments", "say"),
    [
        ({"seed": 1}, "no seed"),
        ({"messages": ["hi"]}, r"give Message\(role, content\)"),
        ({"messages": "hi"}, "list of"),
        ({"system": 5}, "must be a string"),
        ({"gamma": 0}, "within"),
        ({"method": "magic"}, "does not exist"),
    ],
)
async def test_wrong_arguments(arguments: dict[str, Any], say: str) -> None:
    client = EdgeClient("http://127.0.0.1:9", draft=related_draft(), cache=None)
    with pytest.raises(InvalidRequest, match=say):
        client.conversation(**arguments)
    await client.aclose()


async def test_a_conversation_that_is_dropped(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        chat: Conversation | None = client.conversation(max_tokens=4)
        assert chat is not None
        await chat.ask(PROMPT)
        assert len(client.streams) == 1
        assert server.sessions == 1
        chat = None
        assert len(client.streams) == 0
        await until(lambda: server.sessions == 0)
