"""The client for programs that do not await."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.serving import (
    PROMPT,
    QUICK,
    Serving,
    _until,
    greedy_ids,
    related_draft,
    serving,
    toy_target,
)

from edge_sdk import EdgeClient, EdgeClientSync, Message
from edge_sdk.errors import ConnectionFailed, InvalidRequest

ROOT = Path(__file__).parents[3]
TOKENS = 24


@pytest.fixture
def client(server: Serving) -> Iterator[EdgeClientSync]:
    with EdgeClientSync(server.url, draft=related_draft(), cache=None, retry=QUICK) as client:
        yield client


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "edge-client"]


def test_texts(server: Serving, client: EdgeClientSync) -> None:
    stream = client.generate(PROMPT, method="greedy", max_tokens=TOKENS)
    text = "".join(piece.text for piece in stream)
    assert [token.id for token in stream.tokens] == greedy_ids(server.target, PROMPT, TOKENS)
    assert (stream.text, stream.finish, stream.stats.tokens) == (text, "length", TOKENS)
    result = client.complete(PROMPT, method="greedy", max_tokens=TOKENS)
    assert result.text == text
    assert [token.id for token in result.tokens] == [token.id for token in stream.tokens]
    assert list(stream) == []
    with client.generate(PROMPT, method="greedy", max_tokens=TOKENS) as stream:
        assert next(stream).tokens
        assert stream.result().text == text
        with pytest.raises(StopIteration):
            next(stream)
    assert 0 <= stream.seed < 2**64


def test_a_conversation(server: Serving, client: EdgeClientSync) -> None:
    with client.conversation(system="of", method="greedy", max_tokens=TOKENS) as chat:
        first = chat.ask("the sea")
        for _ in (turn := chat.say("to the end")):
            pass
        assert turn.stats.reused_tokens > 20
        assert [message.role for message in chat.messages[1:]] == ["user", "assistant"] * 2
        assert chat.messages[2] == Message("assistant", first.text)
        assert chat.undo()[0].content == "to the end"
        assert len(chat.messages) == 3


def test_leaving_a_loop_frees_the_draft(server: Serving, client: EdgeClientSync) -> None:
    for _ in range(3):
        for piece in client.generate(PROMPT, max_tokens=3000):
            assert piece.tokens
            break
        kept = client.generate(PROMPT, max_tokens=3000)
        next(kept)
        with pytest.raises(InvalidRequest, match="busy with another text"):
            client.complete(PROMPT, max_tokens=2)
        kept.close()
        assert len(client.complete(PROMPT, max_tokens=2).tokens) == 2
    _until(lambda: server.sessions == 0)


def test_several_threads_share_a_client(server: Serving, client: EdgeClientSync) -> None:
    found: dict[int, list[int]] = {}

    def one(number: int) -> None:
        prompt = (PROMPT, "of the end")[number % 2]
        stream = client.generate(prompt, method="greedy", max_tokens=TOKENS)
        for _ in stream:
            pass
        found[number] = [token.id for token in stream.tokens]

    workers = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    expected = [greedy_ids(server.target, prompt, TOKENS) for prompt in (PROMPT, "of the end")]
    assert [found[number] for number in range(6)] == expected * 3


async def test_it_works_where_a_loop_runs(server: Serving) -> None:
    with EdgeClientSync(server.url, draft=related_draft(), cache=None) as client:
        assert len(client.complete(PROMPT, max_tokens=5).tokens) == 5
        # Elsewhere the loop goes on meanwhile.
        result = await asyncio.to_thread(client.complete, PROMPT, max_tokens=5)
        assert len(result.tokens) == 5


def test_from_its_own_thread_it_refuses_to_wait(server: Serving) -> None:
    said: list[str] = []

    def on_round(round_: object) -> None:
        try:
            client.complete(PROMPT)
        except InvalidRequest as error:
            said.append(str(error))

    with EdgeClientSync(server.url, draft=related_draft(), cache=None) as client:
        client.complete(PROMPT, max_tokens=3, on_round=on_round)
    assert "call the client from another thread" in said[0]


def test_nothing_is_left_behind(server: Serving) -> None:
    gc.collect()
    before = threads()
    client = EdgeClientSync(server.url, draft=related_draft(), cache=None)
    stream = client.generate(PROMPT, max_tokens=3000)
    next(stream)
    client.close()
    client.close()
    assert threads() == before
    with pytest.raises(InvalidRequest, match="client is closed"):
        client.complete(PROMPT)
    stream.close()
    with pytest.raises(InvalidRequest, match="client is closed"):
        next(stream)
    _until(lambda: server.sessions == 0)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_client_that_is_dropped_ends_its_thread(server: Serving) -> None:
    before = threads()
    client: Any = EdgeClientSync(server.url, draft=related_draft(), cache=None)
    client.connect()
    del client
    gc.collect()
    _until(lambda: threads() == before)


def test_errors_are_those_of_the_client_that_awaits() -> None:
    before = threads()
    with pytest.raises(InvalidRequest, match=r"base_url|address|URL"):
        EdgeClientSync("nowhere")
    with pytest.raises(ConnectionFailed, match="is the server running"):
        EdgeClientSync("http://127.0.0.1:9", retry=QUICK).__enter__()
    assert threads() == before


@pytest.mark.parametrize("name", ["__init__", "generate", "complete", "conversation"])
def test_the_arguments_are_those_of_the_client_that_awaits(name: str) -> None:
    mine, theirs = getattr(EdgeClientSync, name), getattr(EdgeClient, name)
    assert inspect.signature(mine).parameters == inspect.signature(theirs).parameters


PROGRAM = """
import sys
from edge_sdk import EdgeClientSync
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.draft.toy_text import toy_byte_vocabulary

draft = ToyDraft.random(1, toy_byte_vocabulary([b" the"]))
with EdgeClientSync(sys.argv[1], draft=draft, cache=None) as client:
    try:
        for _ in client.generate("a toy", max_tokens=3000, method=sys.argv[2]):
            print("piece", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(len(client.complete("a toy", max_tokens=3).tokens), flush=True)
"""


@pytest.mark.parametrize("method", ["hybrid", "autoregressive"])
def test_an_interrupt_stops_the_text_and_not_the_client(method: str) -> None:
    with (
        serving(lambda: toy_target(seconds_per_pass=0.05)) as server,
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROGRAM, server.url, method],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as program,
    ):
        assert program.stdout is not None
        first = program.stdout.readline()
        time.sleep(0.2)
        begin = time.monotonic()
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=30)
        assert err == ""
        assert first == "piece\n"
        assert out.splitlines()[-2:] == ["interrupted", "3"]
        assert program.returncode == 0
        assert time.monotonic() - begin < 10
        _until(lambda: server.sessions == 0)
