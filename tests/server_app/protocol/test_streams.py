"""Streams of the server's own tokens: taken up anywhere, several at once, ended."""

from __future__ import annotations

import asyncio
from functools import partial

from harness.raw import Raw, error, frames, in_process
from harness.serving import GREEDY, PROMPT, greedy_ids, until

from edge_sdk.wire import Finish, Generate, Truncate
from server_app.engine.session import Session


async def test_a_stream_can_be_taken_up_anywhere(raw: Raw) -> None:
    path = await raw.open(method="autoregressive", sampling=GREEDY, max_tokens=20, pair_id=None)
    ids = greedy_ids(raw.target, PROMPT, 20)
    for base in (0, 0, 7, 19):
        tokens = frames((await raw.send("POST", f"{path}/generate", Generate(base))).content)
        assert [token.token for token in tokens] == ids[base:]
        assert [token.finish for token in tokens[:-1]] == [0] * (19 - base)
        assert tokens[-1].finish == Finish.LENGTH
    assert frames((await raw.send("POST", f"{path}/generate", Generate(20))).content) == []
    assert error(await raw.send("POST", f"{path}/generate", Generate(21))) == (409, "base_mismatch")


def _has(session: Session, count: int) -> bool:
    return len(session.generated) >= count


async def test_streams_of_one_session_at_once_lose_no_token() -> None:
    async with in_process(seconds_per_pass=0.001) as raw:
        path = await raw.open(method="autoregressive", sampling=GREEDY, max_tokens=40, pair_id=None)
        ids = greedy_ids(raw.target, PROMPT, 40)
        held = raw.host._sessions._held.values()
        (session,) = (item.session for item in held)
        tasks = []
        for _ in range(5):
            tasks.append(asyncio.create_task(raw.send("POST", f"{path}/generate", Generate(0))))
            goal = len(session.generated) + 4
            await until(partial(_has, session, goal))
        streams = [frames((await task).content) for task in tasks]
        assert session.generated == ids
        assert [token.token for token in streams[-1]] == ids
        for stream in streams[:-1]:
            assert stream[-1].error == "sequence_conflict"
            assert [token.token for token in stream[:-1]] == ids[: len(stream) - 1]


async def test_streams_at_once_do_not_write_past_the_end() -> None:
    async with in_process(seconds_per_pass=0.01) as raw:
        path = await raw.open(method="autoregressive", sampling=GREEDY, max_tokens=2, pair_id=None)
        (session,) = (item.session for item in raw.host._sessions._held.values())
        await asyncio.gather(*[raw.send("POST", f"{path}/generate", Generate(0)) for _ in range(4)])
        last = frames((await raw.send("POST", f"{path}/generate", Generate(0))).content)
        await raw.host.engine.call(lambda: None)
        assert session.generated == greedy_ids(raw.target, PROMPT, 2)
        assert [token.token for token in last] == session.generated


async def test_truncate_during_a_stream_ends_it() -> None:
    async with in_process(seconds_per_pass=0.02) as raw:
        path = await raw.open(method="autoregressive", sampling=GREEDY, max_tokens=20, pair_id=None)
        (session,) = (item.session for item in raw.host._sessions._held.values())
        task = asyncio.create_task(raw.send("POST", f"{path}/generate", Generate(0)))
        await until(lambda: len(session.generated) > 5)
        reply = await raw.send("POST", f"{path}/truncate", Truncate(0, 2))
        assert reply.status_code == 200
        assert frames((await task).content)[-1].error == "sequence_conflict"
        tokens = frames((await raw.send("POST", f"{path}/generate", Generate(0))).content)
        assert [token.token for token in tokens] == greedy_ids(raw.target, PROMPT, 20)
