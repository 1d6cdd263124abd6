"""Requests sent twice, too early and long after."""

from __future__ import annotations

import asyncio

from harness.raw import Raw, block, error, ranks, verdict
from harness.serving import PROMPT, greedy_ids

from edge_sdk.wire.limits import MAX_WINDOW


async def test_a_retry_gets_the_stored_reply(raw: Raw) -> None:
    path = await raw.open()
    message = block(*ranks([97, 98]))
    first, *others = await asyncio.gather(
        *[raw.send("POST", f"{path}/verify", message) for _ in range(4)]
    )
    await raw.host.engine.call(lambda: None)
    passes = raw.target.passes
    again = await raw.send("POST", f"{path}/verify", message)
    assert {reply.content for reply in (*others, again)} == {first.content}
    assert raw.target.passes == passes
    other = block(*ranks([97, 99]))
    assert error(await raw.send("POST", f"{path}/verify", other)) == (409, "sequence_conflict")


async def test_a_gap_is_waited_for_and_then_told(raw: Raw) -> None:
    path = await raw.open(method="greedy")
    ids = greedy_ids(raw.target, PROMPT, 5)
    late = asyncio.create_task(raw.send("POST", f"{path}/verify", block(sequence=1, base=1)))
    await asyncio.sleep(0.05)
    first = verdict(await raw.send("POST", f"{path}/verify", block()))
    assert [first.settled, verdict(await late).settled] == ids[:2]
    begin = asyncio.get_running_loop().time()
    reply = await raw.send("POST", f"{path}/verify", block(sequence=3, base=2))
    assert error(reply) == (409, "sequence_gap")
    assert 0.9 < asyncio.get_running_loop().time() - begin < 3
    assert verdict(await raw.send("POST", f"{path}/verify", block(sequence=2, base=2))).settled


async def test_old_replies_are_forgotten_in_the_end(raw: Raw) -> None:
    path = await raw.open(method="greedy")
    for number in range(MAX_WINDOW + 2):
        await raw.send("POST", f"{path}/verify", block(sequence=number, base=number))
    reply = await raw.send("POST", f"{path}/verify", block())
    assert error(reply) == (409, "sequence_conflict")
    assert "past" in reply.json()["error"]["message"]
