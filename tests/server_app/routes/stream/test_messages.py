"""The WebSocket of a session: every message, in any order, over one socket or two."""

from __future__ import annotations

import random

import httpx
from harness.raw import block, opening
from harness.serving import PROMPT, Serving, greedy_ids
from harness.sockets import dialled, opened

from edge_sdk.wire import (
    Ask,
    Extend,
    Extended,
    Generate,
    Generated,
    Truncate,
    Verdict,
    decode,
    encode,
)
from edge_sdk.wire.frames import Down, Up, read_reply
from edge_sdk.wire.limits import MAX_WINDOW


async def test_every_message(server: Serving) -> None:
    text = greedy_ids(server.target, PROMPT, 4)
    session = await opened(server, method="greedy")
    async with dialled(server, session) as line:
        for sequence in range(4):
            await line.send(Up.VERIFY, 7, block(sequence=sequence, base=sequence, q=None))
            assert (await line.verdict(7)).settled == text[sequence]
        await line.send(Up.ASK, 31, Ask(4, 1))
        assert (await line.failure(31)).code == "base_mismatch"
        await line.send(Up.TRUNCATE, 1, Truncate(4, 2))
        assert (await line.frame())[:2] == (Down.REPLY, 1)
        await line.send(Up.VERIFY, 2, block(sequence=5, base=2, q=None))
        assert (await line.verdict(2)).settled == text[2]
        generation = opening(method="greedy", seed=9).generation
        await line.send(Up.EXTEND, 3, Extend(6, opening().prompt, generation))
        kind, slot, data = await line.frame()
        assert (kind, slot) == (Down.REPLY, 3)
        assert decode(Extended, read_reply(data)[0], limit=99).prompt_tokens > 0


async def test_a_stream_of_tokens_ends(server: Serving) -> None:
    session = await opened(server, method="autoregressive", max_tokens=5)
    async with dialled(server, session) as line:
        await line.send(Up.GENERATE, 4, Generate(0))
        ids = []
        while True:
            kind, slot, data = await line.frame()
            assert slot == 4
            if kind == Down.END:
                break
            assert kind == Down.TOKEN
            ids.append(decode(Generated, data[1:], limit=99).token)
        assert len(ids) == 5
        await line.send(Up.GENERATE, 4, Generate(9))
        assert (await line.failure(4)).code == "base_mismatch"


async def test_a_session_goes_on_over_another_socket_and_over_http(server: Serving) -> None:
    text = greedy_ids(server.target, PROMPT, 3)
    session = await opened(server, method="greedy")
    async with dialled(server, session) as line:
        await line.send(Up.VERIFY, 0, block(q=None))
        assert (await line.verdict(0)).settled == text[0]
    async with httpx.AsyncClient(base_url=server.url) as client:
        path = f"/v1/sessions/{session}/verify"
        # The first once more: its reply is kept, however it is asked for.
        for number in (0, 1):
            message = block(sequence=number, base=number, q=None)
            reply = await client.post(path, content=encode(message))
            assert reply.status_code == 200
    async with dialled(server, session) as line:
        await line.send(Up.VERIFY, 0, block(sequence=2, base=2, q=None))
        assert (await line.verdict(0)).settled == text[2]


async def test_requests_in_any_order(server: Serving) -> None:
    session = await opened(server, method="greedy")
    text = greedy_ids(server.target, PROMPT, MAX_WINDOW)
    async with dialled(server, session) as line:
        numbers = list(range(MAX_WINDOW))
        random.Random(1).shuffle(numbers)
        for number in numbers:
            await line.send(Up.VERIFY, number, block(sequence=number, base=number, q=None))
        found = {}
        for _ in numbers:
            kind, slot, data = await line.frame()
            assert kind == Down.REPLY
            found[slot] = decode(Verdict, read_reply(data)[0], limit=1 << 20).settled
    assert [found[number] for number in sorted(found)] == text
