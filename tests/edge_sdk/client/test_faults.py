"""Networks and servers that fail in the middle of a text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from harness.serving import (
    GREEDY,
    PROMPT,
    Faults,
    Serving,
    connected,
    greedy_ids,
    ids_of,
    related_draft,
    serving,
    toy_target,
)

from edge_sdk import Retry
from edge_sdk.errors import ConnectionFailed, ServerUnavailable, SessionLost, TimedOut, Unauthorized

TOKENS = 30
METHODS = ["greedy", "hybrid", "autoregressive"]


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


async def test_lost_again_and_again_ends_in_an_error(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server, related_draft()) as client:
        verify = client.transport.verify

        async def losing(session_id: str, message: object) -> object:
            await client.transport.close_session(session_id)
            return await verify(session_id, message)  # type: ignore[arg-type]

        monkeypatch.setattr(client.transport, "verify", losing)
        with pytest.raises(SessionLost, match="times in a row"):
            await ids_of(client.generate(PROMPT))
