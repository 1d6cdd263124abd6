"""Blocks and stretches: what is settled, and which do not fit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from harness.raw import ALIGNMENT, Raw, block, error, frames, opening, ranks, verdict
from harness.serving import PROMPT, VOCABULARY, greedy_ids

from edge_sdk.wire import Extend, Extended, Finish, Generate, Prompt, Truncate, Truncated, decode
from edge_sdk.wire.limits import MAX_WINDOW


@pytest.mark.parametrize(
    ("message", "code", "field"),
    [
        (block(base=1), "base_mismatch", "base"),
        (block(settled=97, base=1), "base_mismatch", "settled"),
        (block(sequence=0, parent=0), "base_mismatch", "parent"),
        (block(sequence=0, parent=7), "base_mismatch", "parent"),
        (block(sequence=MAX_WINDOW), "sequence_gap", "sequence"),
        (block(sequence=2**53 - 1), "sequence_gap", "sequence"),
        (block(len(ALIGNMENT)), "invalid_request", "draft"),
        (block(*range(65)), "invalid_request", "draft"),
    ],
)
async def test_blocks_that_do_not_fit(raw: Raw, message: Any, code: str, field: str) -> None:
    path = await raw.open()
    reply = await raw.send("POST", f"{path}/verify", message)
    assert error(reply)[1] == code
    assert reply.json()["error"]["field"] == field
    # Nothing took effect, and the number is free.
    assert verdict(await raw.send("POST", f"{path}/verify", block())).accepted == 0


async def test_a_block_of_the_wrong_length(raw: Raw) -> None:
    from edge_sdk.wire import Verify

    path = await raw.open()
    reply = await raw.send("POST", f"{path}/verify", Verify(0, 0, b"\x01\x00\x05"))
    assert error(reply) == (422, "invalid_request")
    assert "no multiple" in reply.json()["error"]["message"]


async def test_the_settled_token_of_the_device_is_awaited(raw: Raw) -> None:
    path = await raw.open()
    first = verdict(await raw.send("POST", f"{path}/verify", block(*ranks([0]), q=1.0)))
    assert first.rejection is not None
    reply = await raw.send("POST", f"{path}/verify", block(sequence=1, base=0))
    assert error(reply) == (409, "base_mismatch")
    for token in (-1, len(VOCABULARY), len(VOCABULARY) - 1, 2**63):
        reply = await raw.send("POST", f"{path}/verify", block(sequence=1, base=1, settled=token))
        assert error(reply) == (422, "invalid_request")
    reply = await raw.send("POST", f"{path}/verify", block(sequence=1, base=1, settled=97))
    assert verdict(reply).settled is not None


async def test_nothing_follows_an_end_token(raw: Raw) -> None:
    (end,) = VOCABULARY.end_ids
    path = await raw.open()
    await raw.send("POST", f"{path}/verify", block(*ranks([0]), q=1.0))
    message = block(*ranks([97, 98]), sequence=1, base=1, settled=end, q=2**-20)
    ended = verdict(await raw.send("POST", f"{path}/verify", message))
    assert (ended.accepted, ended.settled, ended.finish) == (0, None, Finish.END)
    reply = await raw.send("POST", f"{path}/verify", block(sequence=2, base=2))
    assert error(reply) == (422, "invalid_request")
    assert "complete" in reply.json()["error"]["message"]


async def test_drafts_without_a_pair_and_without_a_drafting_method(raw: Raw) -> None:
    path = await raw.open(pair_id=None)
    reply = await raw.send("POST", f"{path}/verify", block(*ranks([97])))
    assert error(reply) == (422, "invalid_request")
    assert verdict(await raw.send("POST", f"{path}/verify", block())).settled is not None
    path = await raw.open(method="autoregressive")
    for message in (block(), block(*ranks([97]), q=None)):
        reply = await raw.send("POST", f"{path}/verify", message)
        assert error(reply) == (422, "invalid_request")


async def test_any_method_may_be_decoded_alone_for_a_while(raw: Raw) -> None:
    own = greedy_ids(raw.target, PROMPT, 12)
    path = await raw.open(method="greedy")
    reply = await raw.send("POST", f"{path}/generate", Generate(0, limit=4))
    assert [frame.token for frame in frames(reply.content)] == own[:4]
    answer = verdict(
        await raw.send("POST", f"{path}/verify", block(*ranks(own[4:6]), base=4, q=None))
    )
    assert (answer.accepted, answer.settled) == (2, own[6])
    again = await raw.send("POST", f"{path}/generate", Generate(5, limit=3))
    assert [frame.token for frame in frames(again.content)] == own[5:8]
    late = await raw.send("POST", f"{path}/generate", Generate(9))
    assert error(late) == (409, "base_mismatch")


async def test_a_stretch_alone_begins_with_the_token_that_the_device_settled(raw: Raw) -> None:
    path = await raw.open(method="hybrid", options={"form": "law"}, max_tokens=9)
    first = verdict(await raw.send("POST", f"{path}/verify", block(*ranks([1]), q=1.0)))
    assert first.rejection is not None
    without = await raw.send("POST", f"{path}/generate", Generate(0))
    assert error(without) == (409, "base_mismatch")
    early = await raw.send("POST", f"{path}/generate", Generate(0, settled=97))
    assert error(early) == (409, "base_mismatch")
    stretch = Generate(1, limit=2, settled=97)
    taken = frames((await raw.send("POST", f"{path}/generate", stretch)).content)
    assert len(taken) == 2
    assert frames((await raw.send("POST", f"{path}/generate", stretch)).content) == taken
    unused = int(VOCABULARY.masked_ids[0])
    refused = await raw.send("POST", f"{path}/generate", Generate(1, settled=unused))
    assert error(refused) == (422, "invalid_request")


async def test_stale_blocks_cost_nothing(raw: Raw) -> None:
    path = await raw.open(method="greedy")
    ids = greedy_ids(raw.target, PROMPT, 8)
    wrong = [(ids[0] + 1) % 256, *ids[1:3]]
    first = block(*ranks(wrong), q=None, more=True)
    second = block(*ranks(ids[3:5]), q=None, sequence=1, base=3, parent=0, more=True)
    third = block(sequence=2, base=5, parent=1)
    replies = await asyncio.gather(
        *[raw.send("POST", f"{path}/verify", message) for message in (first, second, third)]
    )
    verdicts = [verdict(reply) for reply in replies]
    assert [(v.accepted, v.settled) for v in verdicts] == [(0, ids[0]), (-1, None), (-1, None)]
    passes = raw.target.passes
    follow = block(*ranks(ids[1:3]), q=None, sequence=3, base=1)
    assert verdict(await raw.send("POST", f"{path}/verify", follow)).accepted == 2
    assert raw.target.passes == passes + 1


async def test_with_more_to_come_there_is_no_bonus(raw: Raw) -> None:
    path = await raw.open(method="greedy")
    ids = greedy_ids(raw.target, PROMPT, 5)
    first = block(*ranks(ids[:2]), q=None, more=True)
    second = block(*ranks(ids[2:4]), q=None, sequence=1, base=2, parent=0)
    one = verdict(await raw.send("POST", f"{path}/verify", first))
    two = verdict(await raw.send("POST", f"{path}/verify", second))
    assert (one.accepted, one.settled, two.accepted, two.settled) == (2, None, 2, ids[4])


async def test_truncate_and_extend_keep_what_stays(raw: Raw) -> None:
    path = await raw.open(method="greedy")
    ids = greedy_ids(raw.target, PROMPT, 12)
    await raw.send("POST", f"{path}/verify", block(*ranks(ids[:7]), q=None))
    reply = await raw.send("POST", f"{path}/truncate", Truncate(1, 9))
    assert error(reply) == (409, "base_mismatch")
    reply = await raw.send("POST", f"{path}/truncate", Truncate(1, 3))
    assert decode(Truncated, reply.content, limit=99).length == 3
    fed = sum(s.length for s in raw.target._sequences)
    reply = await raw.send("POST", f"{path}/verify", block(sequence=2, base=3))
    assert verdict(reply).settled == ids[3]
    prompt = raw.target.encode(PROMPT)
    assert fed == len(prompt) + 2
    longer = Prompt(ids=(*prompt, *ids[:4], 97, 98))
    used = opening(method="greedy").generation
    reply = await raw.send("POST", f"{path}/extend", Extend(3, longer, used))
    assert error(reply) == (422, "invalid_request")
    message = Extend(3, longer, replace(used, seed=used.seed + 1))
    extended = decode(
        Extended, (await raw.send("POST", f"{path}/extend", message)).content, limit=99
    )
    assert extended == Extended(prompt_tokens=len(prompt) + 6, reused=len(prompt) + 3)
    again = await raw.send("POST", f"{path}/extend", message)
    assert decode(Extended, again.content, limit=99) == extended
    reply = await raw.send("POST", f"{path}/verify", block(sequence=4))
    sequence = [*prompt, *ids[:4], 97, 98]
    logits = raw.target._logits(sequence).copy()
    logits[VOCABULARY.masked_ids] = -1e9
    assert verdict(reply).settled == int(logits.argmax())
