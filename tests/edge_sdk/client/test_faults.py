"""Networks and servers that fail in the middle of a text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from harness.serving import (
    GREEDY,
    PROMPT,
    VOCABULARY,
    Faults,
    Serving,
    connected,
    greedy_ids,
    related_draft,
    serving,
    toy_target,
    until,
)

from edge_sdk import Retry, Sampling, Stream
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.errors import (
    ConnectionFailed,
    CosdError,
    InvalidRequest,
    ModelError,
    ServerUnavailable,
    SessionLost,
    TimedOut,
    TransportError,
    Unauthorized,
    VocabularyMismatch,
)

TOKENS = 30
METHODS = ["greedy", "hybrid", "autoregressive"]


async def ids_of(stream: Stream) -> list[int]:
    async with stream:
        async for _ in stream:
            pass
    return [token.id for token in stream.tokens]


@pytest.mark.parametrize("fault", ["lose", "refuse", "cut", "slow"])
@pytest.mark.parametrize("method", ["greedy", "hybrid"])
async def test_a_bad_network_does_not_change_the_text(
    server: Serving, method: str, fault: str
) -> None:
    options = {"method": method, "seed": 5, "max_tokens": TOKENS, "gamma": 3}
    async with connected(server, related_draft()) as client:
        undisturbed = await ids_of(client.generate(PROMPT, **options))  # type: ignore[arg-type]
    faults = Faults("/verify", [fault, "ok"] * 20)
    async with connected(server, related_draft(), faults=faults) as client:
        stream = client.generate(PROMPT, **options)  # type: ignore[arg-type]
        assert await ids_of(stream) == undisturbed
    assert faults.seen > 6
    assert stream.stats.retries == (0 if fault == "slow" else (faults.seen + 1) // 2)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/pairs", ""])
async def test_lost_replies_before_the_text(server: Serving, path: str) -> None:
    faults = Faults(path, ["lose", "cut"] if path else ["lose", "cut", "ok"] * 12)
    async with connected(server, related_draft(), faults=faults) as client:
        text = await ids_of(client.generate(PROMPT, method="greedy", max_tokens=5))
    assert text == greedy_ids(server.target, PROMPT, 5)


@pytest.mark.parametrize("method", METHODS)
async def test_a_session_that_is_lost_is_opened_again(server: Serving, method: str) -> None:
    async with connected(server, related_draft()) as client:
        stream = client.generate(PROMPT, method=method, sampling=GREEDY, max_tokens=TOKENS, gamma=3)
        async for _ in stream:
            await client.transport.close_session(stream._session.session_id)
    assert [token.id for token in stream.tokens] == greedy_ids(server.target, PROMPT, TOKENS)
    # A stream of the server's has tokens on the way when its session goes.
    assert stream.stats.reopened >= (1 if method == "autoregressive" else 4)
    assert stream.finish == "length"


async def test_the_same_seed_gives_the_same_text_over_lost_sessions(server: Serving) -> None:
    texts = []
    for losing in (False, True):
        async with connected(server, related_draft()) as client:
            stream = client.generate(PROMPT, seed=8, max_tokens=TOKENS, gamma=2)
            async for _ in stream:
                if losing:
                    await client.transport.close_session(stream._session.session_id)
        texts.append([token.id for token in stream.tokens])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("method", METHODS)
async def test_eviction_by_others(method: str) -> None:
    with serving(max_sessions=1) as server:
        async with connected(server, related_draft()) as client, connected(server) as other:
            stream = client.generate(
                PROMPT, method=method, sampling=GREEDY, max_tokens=TOKENS, gamma=3
            )
            count = 0
            async for _ in stream:
                count += 1
                if count in (2, 5) and method != "autoregressive":
                    await ids_of(other.generate("to", method="autoregressive", max_tokens=2))
            assert [t.id for t in stream.tokens] == greedy_ids(server.target, PROMPT, TOKENS)
            assert stream.stats.reopened == (0 if method == "autoregressive" else 2)


async def test_eviction_by_time() -> None:
    with serving(session_ttl=0.05) as server:
        async with connected(server, related_draft()) as client:
            stream = client.generate(PROMPT, method="greedy", max_tokens=9, gamma=2)
            async for _ in stream:
                await asyncio.sleep(0.08)
                await asyncio.to_thread(_sweep, server)
        assert [t.id for t in stream.tokens] == greedy_ids(server.target, PROMPT, 9)
        assert stream.stats.reopened > 0


def _sweep(server: Serving) -> None:
    assert server.loop is not None
    done = asyncio.run_coroutine_threadsafe(_in_loop(server.app.state.host.sweep), server.loop)
    done.result(timeout=5)


async def _in_loop(call: Callable[[], None]) -> None:
    call()


@pytest.mark.parametrize("method", METHODS)
async def test_a_restarted_server_goes_on(method: str) -> None:
    with serving() as server:
        retry = Retry(attempts=8, first=0.02, longest=0.3)
        async with connected(server, related_draft(), retry=retry) as client:
            stream = client.generate(PROMPT, method=method, sampling=GREEDY, max_tokens=TOKENS)
            restarted = None
            async for _ in stream:
                if len(stream.tokens) >= 8 and restarted is None:
                    restarted = asyncio.create_task(asyncio.to_thread(server.restart))
                    await asyncio.sleep(0.05)
            assert restarted is not None
            await restarted
            assert [t.id for t in stream.tokens] == greedy_ids(server.target, PROMPT, TOKENS)
            assert stream.finish == "length"


@pytest.mark.parametrize("method", METHODS)
async def test_a_server_that_goes_down_ends_the_text_with_an_error(method: str) -> None:
    slow = {"seconds_per_pass": 0.002}
    with serving(lambda: toy_target(**slow)) as server:
        async with connected(server, related_draft()) as client:
            stream = client.generate(PROMPT, method=method, sampling=GREEDY, max_tokens=4000)

            async def read_on() -> None:
                async for _ in stream:
                    if len(stream.tokens) >= 8:
                        await asyncio.to_thread(server.stop, hard=True)

            with pytest.raises((ConnectionFailed, ServerUnavailable)):
                await read_on()
        count = len(stream.tokens)
        assert count >= 8
        assert [t.id for t in stream.tokens] == greedy_ids(server.target, PROMPT, count)
        assert stream.text
        assert stream.finish is None
        assert stream.stats.tokens == count


async def test_no_server_at_all_is_said_in_a_sentence() -> None:
    with serving() as server:
        url = server.url
    with pytest.raises(ConnectionFailed, match="is the server running"):
        async with connected(url):
            pass


async def test_a_silent_server_times_out() -> None:
    held = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    with pytest.raises(TimedOut, match="did not answer in time"):
        async with connected(f"http://127.0.0.1:{port}", reply=0.05):
            pass
    for writer in held:
        writer.close()
    listener.close()
    await listener.wait_closed()


@pytest.mark.parametrize("keys", [None, "wrong"])
async def test_a_key_that_is_missing_or_wrong(keys: str | None) -> None:
    with serving(keys=["right", "other"]) as server:
        with pytest.raises(Unauthorized):
            async with connected(server, api_key=keys):
                pass
        async with connected(server, related_draft(), api_key="other") as client:
            assert len(await ids_of(client.generate(PROMPT, max_tokens=3))) == 3


async def test_a_pair_that_the_server_forgot_is_registered_again(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        await ids_of(client.generate(PROMPT, method="greedy", max_tokens=3))
        server.app.state.host._pairs._pairs.clear()
        text = await ids_of(client.generate(PROMPT, method="greedy", max_tokens=3))
    assert text == greedy_ids(server.target, PROMPT, 3)


async def test_a_draft_that_shares_nothing() -> None:
    from edge_sdk.draft.toy_text import toy_vocabulary

    strange = toy_vocabulary([b"\x00\x01", b"\x00\x02", b"\x00\x03\x04"])
    with serving() as server, pytest.raises(VocabularyMismatch, match="shares 0 of"):
        async with connected(server, ToyDraft.random(1, strange)):
            pass


# Cancelling.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kept", [True, False])
async def test_leaving_the_loop_frees_draft_and_session(
    server: Serving, method: str, kept: bool
) -> None:
    await until(lambda: server.sessions == 0)
    async with connected(server, related_draft()) as client:
        stream = client.generate(PROMPT, method=method, sampling=GREEDY, max_tokens=3000)
        async for _ in stream:
            break
        if not kept:
            del stream
        async with asyncio.timeout(5):
            text = await ids_of(client.generate(PROMPT, method="greedy", max_tokens=4))
            await until(lambda: server.sessions == 0)
        if kept:
            assert [piece async for piece in stream] == []
    assert text == greedy_ids(server.target, PROMPT, 4)


async def test_cancelling_while_a_verify_is_in_flight() -> None:
    with serving(lambda: toy_target(seconds_per_pass=0.3)) as server:
        async with connected(server, related_draft()) as client:
            task = asyncio.create_task(ids_of(client.generate(PROMPT, max_tokens=500)))
            await until(lambda: server.target.passes >= 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(5):
                assert len(await ids_of(client.generate(PROMPT, max_tokens=1))) == 1
                await until(lambda: server.sessions == 0)


async def test_cancelling_while_the_draft_computes(server: Serving) -> None:
    import threading
    import time

    entered = threading.Event()
    draft = related_draft()
    logits = draft._logits

    def slow(ids: object) -> object:
        entered.set()
        time.sleep(0.05)
        return logits(ids)  # type: ignore[arg-type]

    draft._logits = slow  # type: ignore[assignment]
    async with connected(server, draft) as client:
        task = asyncio.create_task(ids_of(client.generate(PROMPT, gamma=60, max_tokens=500)))
        assert await asyncio.to_thread(entered.wait, 5)
        task.cancel()
        begin = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        # One token at most is drafted on, not the other 59.
        assert time.monotonic() - begin < 1
        draft._logits = logits
        assert await ids_of(client.generate(PROMPT, method="greedy", max_tokens=4)) == greedy_ids(
            server.target, PROMPT, 4
        )


@pytest.mark.parametrize("method", METHODS)
async def test_closing_the_client_ends_a_text_in_another_task(method: str) -> None:
    with serving(lambda: toy_target(seconds_per_pass=0.02)) as server:
        async with connected(server, related_draft()) as client:
            stream = client.generate(PROMPT, method=method, sampling=GREEDY, max_tokens=3000)
            task = asyncio.create_task(ids_of(stream))
            await until(lambda: len(stream.tokens) > 2)
            async with asyncio.timeout(5):
                await client.aclose()
                with pytest.raises((InvalidRequest, TransportError), match=r"closed|connection"):
                    await task
            await client.aclose()
            with pytest.raises(InvalidRequest, match="client is closed"):
                await ids_of(client.generate(PROMPT, method="autoregressive"))


async def test_closing_the_client_ends_a_text_that_nobody_reads(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        stream = client.generate(PROMPT, max_tokens=3000)
        await anext(stream)
        await client.aclose()
    await until(lambda: server.sessions == 0)


@pytest.mark.parametrize("method", METHODS)
async def test_closing_the_client_after_leaving_the_loop_closes_the_session(
    server: Serving, method: str
) -> None:
    await until(lambda: server.sessions == 0)
    async with connected(server, related_draft()) as client:
        async for _ in client.generate(PROMPT, method=method, sampling=GREEDY, max_tokens=3000):
            break
    assert server.sessions == 0


async def test_streams_that_are_never_read(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        client.generate(PROMPT)
        async with client.generate(PROMPT) as stream:
            pass
        await stream.aclose()
        aiter(client.generate(PROMPT))
        assert [piece async for piece in stream] == []
        assert await ids_of(client.generate(PROMPT, max_tokens=2))


# The draft.


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("method", ["greedy", "hybrid"])
async def test_a_draft_whose_logits_are_no_numbers(
    server: Serving, method: str, value: float
) -> None:
    draft = related_draft()
    logits = draft._logits

    def broken(ids: object) -> object:
        row = logits(ids).copy()  # type: ignore[arg-type]
        if draft.length > 30:
            row[7] = value
        return row

    draft._logits = broken  # type: ignore[assignment]
    async with connected(server, draft) as client:
        stream = client.generate(PROMPT, method=method, max_tokens=200, seed=1, gamma=3)
        with pytest.raises(ModelError, match="draft's logits contain"):
            await ids_of(stream)
        assert len(stream.tokens) > 3
        draft._logits = logits
        assert len(await ids_of(client.generate(PROMPT, max_tokens=3))) == 3


# Arguments.


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
    server: Serving, arguments: dict[str, object], field: str, say: str
) -> None:
    async with connected(server, related_draft()) as client:
        with pytest.raises(InvalidRequest, match=say) as caught:
            client.generate(**arguments)  # type: ignore[arg-type]
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
def test_bad_sampling_is_named(values: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field) as caught:
        Sampling(**values)  # type: ignore[arg-type]
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
    server: Serving, method: str, arguments: dict[str, object], code: str
) -> None:
    async with connected(server, related_draft()) as client:
        with pytest.raises(CosdError) as caught:
            await ids_of(client.generate(method=method, **arguments))  # type: ignore[arg-type]
        assert caught.value.code == code
        assert await ids_of(client.generate(PROMPT, max_tokens=2))


async def test_a_chat_for_a_target_without_template() -> None:
    from edge_sdk import Message
    from edge_sdk.errors import NoChatTemplate

    def mute() -> object:
        target = toy_target()
        target._chat = False
        return target

    with serving(mute) as server:  # type: ignore[arg-type]
        async with connected(server, related_draft()) as client:
            with pytest.raises(NoChatTemplate, match="plain prompt"):
                await ids_of(client.generate(messages=[Message("user", "hi")]))


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://a", "http://", "http://a/?b=1", 7])
def test_addresses_that_are_none(url: object) -> None:
    from edge_sdk import EdgeClient

    with pytest.raises(InvalidRequest, match=r"URL|address"):
        EdgeClient(url)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["", "  ", "schlüssel", "a\nb"])
def test_keys_that_no_header_can_carry(key: str) -> None:
    from edge_sdk import EdgeClient

    with pytest.raises(InvalidRequest, match="api_key"):
        EdgeClient("http://a", api_key=key)


async def test_lost_again_and_again_ends_in_an_error(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        verify = client.transport.verify

        async def losing(session_id: str, message: object) -> object:
            await client.transport.close_session(session_id)
            return await verify(session_id, message)  # type: ignore[arg-type]

        client.transport.verify = losing  # type: ignore[method-assign,assignment]
        with pytest.raises(SessionLost, match="times in a row"):
            await ids_of(client.generate(PROMPT))
