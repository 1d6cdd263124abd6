"""What becomes of the sessions behind OpenAI's routes: faults cost no token, and nothing stays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from harness.raw import in_process
from harness.serving import PROMPT, VOCABULARY, Serving, serving, toy_target, until

from edge_sdk.errors import (
    CosdError,
    RateLimited,
    ServerFault,
    ServerUnavailable,
    SessionLost,
)
from edge_sdk.sampling import Sampling
from edge_sdk.wire import Generate, Generated, Generation, Prompt
from server_app.openai import served_text
from server_app.openai.interface.delta import Delta
from server_app.openai.served_text import ServedText
from server_app.target.toy import ToyTarget

PASS_SECONDS = 0.01
BODY: dict[str, Any] = {"model": "toy", "prompt": PROMPT, "max_tokens": 24, "seed": 8}


@pytest.fixture(scope="module")
def slow() -> Iterator[Serving]:
    with serving(lambda: toy_target(seconds_per_pass=PASS_SECONDS)) as running:
        yield running


@contextlib.asynccontextmanager
async def speaking(server: Serving) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{server.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
        yield client


async def stands_still(server: Serving) -> None:
    """Nothing is held, and nothing is computed any more."""
    await until(lambda: server.sessions == 0 and server.sequences == 0)
    passes = server.target.passes
    await asyncio.sleep(10 * PASS_SECONDS)
    assert server.target.passes == passes


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["completions", "chat/completions"])
async def test_a_client_that_leaves_costs_nothing_more(
    slow: Serving, stream: bool, path: str
) -> None:
    begun = slow.target.passes
    body = {
        "model": "toy",
        "max_tokens": 3000,
        "stream": stream,
        "n": 2,
        "seed": 1,
        **(
            {"prompt": PROMPT}
            if path == "completions"
            else {"messages": [{"role": "user", "content": "hi"}]}
        ),
    }
    async with httpx.AsyncClient() as client:
        request = client.stream("POST", f"{slow.url}/v1/{path}", json=body)

        async def read() -> None:
            async with request as reply:
                async for _ in reply.aiter_bytes():
                    pass

        task = asyncio.create_task(read())
        await until(lambda: slow.target.passes > begun + 10)
        assert slow.sessions == 2
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await stands_still(slow)
    assert slow.target.passes < begun + 300


async def test_a_client_that_leaves_before_the_first_token() -> None:
    with serving(lambda: toy_target(seconds_per_pass=0.3)) as server:
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.ReadTimeout):
                await client.post(
                    f"{server.url}/v1/completions",
                    json={**BODY, "stream": True},
                    timeout=httpx.Timeout(5, read=0.1),
                )
        await until(lambda: server.sessions == 0 and server.sequences == 0)
        passes = server.target.passes
        await asyncio.sleep(0.5)
        assert server.target.passes <= passes + 1


async def test_a_stream_that_is_closed_early(slow: Serving) -> None:
    async with speaking(slow) as client:
        events = await client.completions.create(**BODY | {"max_tokens": 3000}, stream=True)
        async for _ in events:
            break
        await events.close()
        await stands_still(slow)


def break_streams(
    server: Serving, monkeypatch: pytest.MonkeyPatch, after: Callable[[int], bool], kind: Any
) -> list[int]:
    """Make streams of the host end with an error after a token, and the session be lost with
    `SessionLost`. Returns the places where they did."""
    host = server.app.state.host
    generate = host.generate
    broken: list[int] = []

    async def breaking(
        owner: str, session_id: str, message: Generate
    ) -> AsyncGenerator[Generated, None]:
        base = message.base
        async with contextlib.aclosing(generate(owner, session_id, message)) as tokens:
            async for token in tokens:
                yield token
                base += 1
                if not token.finish and after(base):
                    broken.append(base)
                    if kind is SessionLost:
                        await host.close(owner, session_id)
                        continue
                    raise kind("it broke", retry_after=0.01)

    monkeypatch.setattr(host, "generate", breaking)
    return broken


@pytest.mark.parametrize("kind", [SessionLost, ServerUnavailable, RateLimited])
async def test_a_lost_session_costs_no_token(
    slow: Serving, monkeypatch: pytest.MonkeyPatch, kind: type[CosdError]
) -> None:
    async with speaking(slow) as client:
        undisturbed = await client.completions.create(**BODY)
        broken = break_streams(slow, monkeypatch, lambda base: base % 5 == 0, kind)
        disturbed = await client.completions.create(**BODY)
        events = await client.completions.create(**BODY, stream=True)
        text = "".join([event.choices[0].text async for event in events])
    assert broken == [5, 10, 15, 20] * 2
    assert disturbed.choices[0].text == text == undisturbed.choices[0].text
    assert disturbed.usage == undisturbed.usage
    await stands_still(slow)


async def test_a_text_that_cannot_go_on(slow: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = break_streams(slow, monkeypatch, lambda base: base == 3, ServerFault)
    async with speaking(slow) as client:
        with pytest.raises(openai.InternalServerError) as whole:
            await client.completions.create(**BODY)
        assert whole.value.code == "server_fault"
        events = await client.completions.create(**BODY, stream=True)
        with pytest.raises(openai.APIError, match="it broke") as streamed:
            async for _ in events:
                pass
        assert streamed.value.code == "server_fault"
        assert broken == [3, 3]
    await stands_still(slow)


async def test_an_unforeseen_fault_is_an_event(
    slow: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> AsyncGenerator[Generated, None]:
        yield Generated(token=97)
        raise RuntimeError("a secret")

    monkeypatch.setattr(slow.app.state.host, "generate", broken)
    async with speaking(slow) as client:
        events = await client.completions.create(**BODY, stream=True)
        with pytest.raises(openai.APIError) as caught:
            async for _ in events:
                pass
    assert "secret" not in str(caught.value)
    await stands_still(slow)


@pytest.mark.parametrize(("kind", "tries"), [(SessionLost, 9), (ServerUnavailable, 6)])
async def test_a_stream_that_breaks_again_and_again_ends(
    slow: Serving, monkeypatch: pytest.MonkeyPatch, kind: type[CosdError], tries: int
) -> None:
    monkeypatch.setattr(served_text, "_WAIT_SECONDS", 0.001)
    bases = []

    async def lost(_: str, __: str, message: Generate) -> AsyncGenerator[Generated, None]:
        bases.append(message.base)
        if message.base == 0:
            yield Generated(token=97)
        raise kind("gone")

    monkeypatch.setattr(slow.app.state.host, "generate", lost)
    async with speaking(slow) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.completions.create(**BODY)
    assert caught.value.status_code == 503
    assert bases == [0] + [1] * (tries - 1)
    await stands_still(slow)


async def test_a_server_that_goes_down_ends_its_streams(slow: Serving) -> None:
    async with speaking(slow) as client:
        events = await client.completions.create(**BODY | {"max_tokens": 3000}, stream=True)
        host = slow.app.state.host
        host.draining = host.closing = True
        try:
            with pytest.raises(openai.APIError) as caught:
                [event async for event in events]
        finally:
            host.draining = host.closing = False
        assert caught.value.code == "server_away"
    await stands_still(slow)


async def test_who_does_not_read_keeps_nobody_out() -> None:
    generation = Generation("autoregressive", Sampling(), max_tokens=50, seed=4)
    async with in_process() as raw:

        def text() -> ServedText:
            return ServedText(raw.host, "me", Prompt(text=PROMPT), generation)

        async def read(deltas: asyncio.Queue[Any]) -> str:
            whole = ""
            while True:
                delta = await deltas.get()
                assert isinstance(delta, Delta)
                whole += delta.text
                if delta.finish_reason:
                    return whole

        quick: asyncio.Queue[Any] = asyncio.Queue()
        await text().write(quick)
        wanted = await read(quick)
        deltas: asyncio.Queue[Any] = asyncio.Queue(2)
        writing = asyncio.create_task(text().write(deltas))
        await until(deltas.full)
        await asyncio.sleep(0.05)
        passes = raw.target.passes
        await asyncio.sleep(0.05)
        assert raw.target.passes == passes
        # Idle, so it goes when others need the room; its text does not.
        assert raw.host.sessions == 1
        raw.host._sessions._limit = 1
        other = asyncio.Queue[Any]()
        await ServedText(raw.host, "other", Prompt(text="x"), generation).write(other)
        assert await read(deltas) == wanted
        await writing
        assert raw.host.sessions == 0


CHARACTERS = "é😀 añb漢字\u0000"


def utf8_target() -> ToyTarget:
    """Writes `CHARACTERS` over and over, a byte a token, after a prompt of one token."""
    data = CHARACTERS.encode()

    def logits(ids: Any) -> Any:
        row = [-100.0] * len(VOCABULARY)
        row[data[(len(ids) - 1) % len(data)]] = 0.0
        return np.array(row)

    return ToyTarget(VOCABULARY, logits)


async def test_characters_come_whole() -> None:
    count = len(CHARACTERS.encode())
    with serving(utf8_target) as server:
        async with speaking(server) as client:
            options: dict[str, Any] = {"model": "toy", "prompt": "x", "temperature": 0}
            events = await client.completions.create(**options, max_tokens=2 * count, stream=True)
            pieces = [event.choices[0].text async for event in events]
            assert "".join(pieces) == CHARACTERS * 2
            assert [piece for piece in pieces if piece] == list(CHARACTERS * 2)
            # A text that is cut in a character says so with U+FFFD, as the SDK does.
            reply = await client.completions.create(**options, max_tokens=4)
            assert reply.choices[0].text == "é\ufffd"
            stopped = await client.completions.create(
                **options, max_tokens=60, stop=["añ", "字"], stream=True
            )
            assert "".join([event.choices[0].text async for event in stopped]) == "é😀 "
