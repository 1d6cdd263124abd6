"""Servers that drain, that are full, whose model fails; and sessions that leave nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from harness.raw import Raw, block, error, frames, in_process, opening
from harness.serving import until

from edge_sdk.wire import Generate, encode


async def test_a_draining_server_ends_streams_and_opens_nothing() -> None:
    async with in_process(seconds_per_pass=0.001) as raw:
        path = await raw.open(method="autoregressive", max_tokens=4000, pair_id=None)
        task = asyncio.create_task(raw.send("POST", f"{path}/generate", Generate(0)))
        await until(lambda: raw.target.passes > 5)
        assert (await raw.client.get("/ready")).status_code == 200
        raw.host.draining = raw.host.closing = True
        assert frames((await task).content)[-1].error == "server_away"
        reply = await raw.send("PUT", f"/v1/sessions/{'2' * 32}", opening())
        assert error(reply) == (503, "server_away")
        assert reply.headers["retry-after"] == "1"
        assert (await raw.client.get("/ready")).status_code == 503
        assert (await raw.client.get("/health")).status_code == 200


async def test_a_full_server_says_so(raw: Raw) -> None:
    raw.host._sessions._limit = 2
    paths = [await raw.open() for _ in range(2)]
    for held in raw.host._sessions._held.values():
        held.busy = 1
    reply = await raw.send("PUT", f"/v1/sessions/{'2' * 32}", opening())
    assert error(reply) == (503, "server_unavailable")
    assert "in use" in reply.json()["error"]["message"]
    for held in raw.host._sessions._held.values():
        held.busy = 0
    await raw.open()
    assert error(await raw.send("POST", f"{paths[0]}/verify", block())) == (410, "session_lost")
    assert (await raw.send("POST", f"{paths[1]}/verify", block())).status_code == 200


async def test_a_model_that_fails_loses_the_session_and_nothing_else(raw: Raw) -> None:
    path, other = await raw.open(), await raw.open()
    await raw.host.engine.call(lambda: None)

    def fails(ids: Sequence[int]) -> NoReturn:
        raise ZeroDivisionError

    logits, raw.target._logits = raw.target._logits, fails
    reply = await raw.send("POST", f"{path}/verify", block())
    assert error(reply) == (500, "server_fault")
    assert "ZeroDivision" not in reply.text
    raw.target._logits = logits
    assert error(await raw.send("POST", f"{path}/verify", block())) == (410, "session_lost")
    assert (await raw.send("POST", f"{other}/verify", block())).status_code == 200


async def test_two_thousand_sessions_leave_nothing(raw: Raw) -> None:
    body = encode(opening())
    raw.host._sessions._limit = 50
    for number in range(2000):
        path = f"/v1/sessions/{number:032x}"
        reply = await raw.host.open("me", f"{number:032x}", opening(), body)
        assert reply
        if number % 10 == 0:
            await raw.host.verify("me", path[-32:], block(), encode(block()))
        if number % 3 == 0:
            await raw.host.close("me", path[-32:])
    await raw.host.engine.call(lambda: None)
    assert len(raw.host._sessions) <= 50
    assert len(raw.target._sequences) <= 50
    for number in range(2000):
        await raw.host.close("me", f"{number:032x}")
    await raw.host.engine.call(lambda: None)
    assert len(raw.host._sessions) == len(raw.target._sequences) == 0
