"""What the server says to requests that do not fit."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import msgpack
import pytest
from harness.raw import ALIGNMENT, KEY, OTHER_KEY, Raw, block, error, in_process, opening, pair
from harness.serving import PROMPT, VOCABULARY, greedy_ids, until

from edge_sdk.chat import Message
from edge_sdk.sampling import Sampling
from edge_sdk.wire import (
    Extend,
    Extended,
    Finish,
    Generate,
    Generated,
    Prompt,
    RegisterPair,
    Truncate,
    Truncated,
    Verdict,
    decode,
    encode,
)
from edge_sdk.wire.limits import MAX_OPEN_BODY, MAX_PAIR_BODY, MAX_ROUND_BODY, MAX_WINDOW
from server_app.engine.session import Session
from server_app.methods.registry import SERVER_HALVES

GREEDY = Sampling(temperature=0)


def verdict(reply: httpx.Response) -> Verdict:
    assert reply.status_code == 200, reply.text
    return decode(Verdict, reply.content, limit=1 << 20)


def frames(data: bytes) -> list[Generated]:
    out = []
    while data:
        size = int.from_bytes(data[:4], "little")
        out.append(decode(Generated, data[4 : 4 + size], limit=1 << 16))
        data = data[4 + size :]
    return out


def ranks(ids: list[int]) -> list[int]:
    found: list[int] = ALIGNMENT.rank_of_target[ids].tolist()
    return found


ROUTES = [
    ("PUT", "/v1/pairs"),
    ("PUT", f"/v1/sessions/{'0' * 32}"),
    ("POST", f"/v1/sessions/{'0' * 32}/verify"),
    ("POST", f"/v1/sessions/{'0' * 32}/truncate"),
    ("POST", f"/v1/sessions/{'0' * 32}/extend"),
    ("POST", f"/v1/sessions/{'0' * 32}/generate"),
]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *ROUTES,
        ("GET", "/v1/models"),
        ("GET", "/v1/vocabularies/x"),
        ("DELETE", f"/v1/sessions/{'0' * 32}"),
    ],
)
@pytest.mark.parametrize("key", [None, "wrong", KEY + "x", ""])
async def test_no_route_without_a_key(raw: Raw, method: str, path: str, key: str | None) -> None:
    reply = await raw.send(method, path, key=key)
    assert error(reply) == (401, "unauthorized")
    assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("header", [f"Basic {KEY}", KEY, "Bearer", f"bearer{KEY}"])
async def test_a_key_must_be_a_bearer(raw: Raw, header: str) -> None:
    reply = await raw.client.get("/v1/models", headers={"authorization": header})
    assert error(reply) == (401, "unauthorized")


@pytest.mark.parametrize("action", ["verify", "truncate", "extend", "generate"])
async def test_an_unknown_session_is_lost(raw: Raw, action: str) -> None:
    message: Any = {
        "verify": block(),
        "truncate": Truncate(0, 0),
        "extend": Extend(0, Prompt(text="x"), opening().generation),
        "generate": Generate(0),
    }[action]
    reply = await raw.send("POST", f"/v1/sessions/{'1' * 32}/{action}", message)
    assert error(reply) == (410, "session_lost")


async def test_keys_cannot_touch_each_others_sessions(raw: Raw) -> None:
    path = await raw.open(method="autoregressive", pair_id=None)
    for action, message in (
        ("verify", block()),
        ("truncate", Truncate(0, 0)),
        ("generate", Generate(0)),
        ("extend", Extend(0, Prompt(text="x"), opening().generation)),
    ):
        reply = await raw.send("POST", f"{path}/{action}", message, key=OTHER_KEY)
        assert error(reply) == (410, "session_lost")
    assert (await raw.send("DELETE", path, key=OTHER_KEY)).status_code == 204
    # The same id under another key is another session.
    own = opening(method="autoregressive", pair_id=None, max_tokens=2)
    assert (await raw.send("PUT", path, own, key=OTHER_KEY)).status_code == 200
    theirs = frames((await raw.send("POST", f"{path}/generate", Generate(0))).content)
    ours = frames((await raw.send("POST", f"{path}/generate", Generate(0), key=OTHER_KEY)).content)
    assert (len(theirs), len(ours)) == (64, 2)


@pytest.mark.parametrize("session", ["1" * 31, "1" * 33, "A" * 32, "g" * 32, "%2e" * 8])
async def test_session_ids_have_one_form(raw: Raw, session: str) -> None:
    reply = await raw.send("POST", f"/v1/sessions/{session}/verify", block())
    assert error(reply) == (422, "invalid_request")


@pytest.mark.parametrize(
    ("message", "code", "say"),
    [
        (opening(protocol=2), "invalid_request", "protocol 2"),
        (opening(pair_id="0" * 64), "unknown_vocabulary", "register"),
        (opening(method="magic"), "unknown_method", "it offers hybrid, "),
        (opening(options={"beam": 3}), "invalid_request", "no option 'beam'"),
        (opening(options={"law_format": "f8"}), "invalid_request", "law_format"),
        (opening(method="greedy", sampling=Sampling()), "invalid_request", "temperature"),
        (opening(prompt=Prompt(text="")), "empty_prompt", "empty"),
        (opening(prompt=Prompt(messages=())), "empty_prompt", "no messages"),
        (opening(prompt=Prompt(ids=())), "empty_prompt", "no tokens"),
        (opening(prompt=Prompt(text="x" * 4096)), "prompt_too_long", "4096"),
        (opening(prompt=Prompt(ids=(5,) * 4096)), "prompt_too_long", "4096"),
        (opening(generated=(5,) * 4090), "prompt_too_long", "context"),
        (opening(prompt=Prompt(ids=(len(VOCABULARY),))), "invalid_request", "prompt.ids"),
        (opening(prompt=Prompt(ids=(1, -1))), "invalid_request", "prompt.ids"),
        (opening(prompt=Prompt(ids=(len(VOCABULARY) - 1,))), "invalid_request", "unused"),
        (opening(generated=(1, 999999)), "invalid_request", "generated"),
        (opening(generated=(len(VOCABULARY) - 2,)), "invalid_request", "unused"),
    ],
)
async def test_openings_that_are_refused(raw: Raw, message: Any, code: str, say: str) -> None:
    reply = await raw.send("PUT", f"/v1/sessions/{secrets.token_hex(16)}", message)
    status, found = error(reply)
    assert 400 <= status < 500
    assert found == code
    assert say in reply.json()["error"]["message"] or say in reply.json()["error"]["field"]
    assert len(raw.host._sessions) == 0


async def test_a_million_ids_do_not_hold_the_event_loop(raw: Raw) -> None:
    body = encode(opening(prompt=Prompt(ids=(5,) * 1_000_000)))
    worst = 0.0

    async def watch() -> None:
        nonlocal worst
        loop = asyncio.get_running_loop()
        while True:
            begin = loop.time()
            await asyncio.sleep(0)
            worst = max(worst, loop.time() - begin)

    watcher = asyncio.create_task(watch())
    reply = await raw.send("PUT", f"/v1/sessions/{secrets.token_hex(16)}", body)
    watcher.cancel()
    assert error(reply) == (422, "prompt_too_long")
    assert worst < 2.5


def raw_open(**changes: Any) -> list[Any]:
    """An opening as plain arrays, so that anything can be put into it."""
    plain: list[Any] = msgpack.unpackb(encode(opening()))
    while len(plain[3][1]) < 5:
        plain[3][1].append([1.0, 1.0, 0, 1.0, 0.0][len(plain[3][1])])
    for name, value in changes.items():
        plain[3][1][["penalty", "temperature", "top_k", "top_p", "min_p"].index(name)] = value
    return plain


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"temperature": 1e-30}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -3}, "top_k"),
        ({"top_k": True}, "top_k"),
        ({"min_p": 1.1}, "min_p"),
        ({"penalty": 0}, "repetition_penalty"),
    ],
)
async def test_sampling_that_is_refused(raw: Raw, values: dict[str, Any], field: str) -> None:
    body = msgpack.packb(raw_open(**values))
    reply = await raw.send("PUT", f"/v1/sessions/{secrets.token_hex(16)}", body)
    assert reply.status_code == 422
    assert field in reply.json()["error"]["field"]


async def test_a_chat_without_a_template(raw: Raw) -> None:
    raw.target._chat = False
    message = opening(prompt=Prompt(messages=(Message("user", "hi"),)))
    reply = await raw.send("PUT", f"/v1/sessions/{secrets.token_hex(16)}", message)
    assert error(reply) == (422, "no_chat_template")


async def test_opening_twice(raw: Raw) -> None:
    path = f"/v1/sessions/{secrets.token_hex(16)}"
    replies = await asyncio.gather(*[raw.send("PUT", path, opening()) for _ in range(3)])
    assert {reply.status_code for reply in replies} == {200}
    assert len(raw.host._sessions) == 1
    reply = await raw.send("PUT", path, opening(seed=4))
    assert error(reply) == (409, "sequence_conflict")
    other = f"/v1/sessions/{secrets.token_hex(16)}"
    replies = await asyncio.gather(*[raw.send("PUT", other, opening(seed=seed)) for seed in (1, 2)])
    assert sorted(reply.status_code for reply in replies) == [200, 409]


@pytest.mark.parametrize(
    ("method", "path", "size"),
    [
        ("PUT", "/v1/pairs", MAX_PAIR_BODY),
        ("PUT", f"/v1/sessions/{'0' * 32}", MAX_OPEN_BODY),
        ("POST", f"/v1/sessions/{'0' * 32}/truncate", MAX_ROUND_BODY),
        ("POST", f"/v1/sessions/{'0' * 32}/extend", MAX_OPEN_BODY),
        ("POST", f"/v1/sessions/{'0' * 32}/generate", MAX_ROUND_BODY),
    ],
)
async def test_bodies_over_their_limit(raw: Raw, method: str, path: str, size: int) -> None:
    assert error(await raw.send(method, path, bytes(size + 1))) == (413, "message_too_large")
    assert error(await raw.send(method, path, bytes(size)))[0] == 422

    async def unannounced() -> Any:
        for _ in range(size // 4096 + 1):
            yield bytes(4096)

    headers = {"authorization": f"Bearer {KEY}"}
    reply = await raw.client.request(method, path, content=unannounced(), headers=headers)
    assert error(reply) == (413, "message_too_large")
    headers["content-length"] = "9" * 5000
    reply = await raw.client.request(method, path, content=b"x", headers=headers)
    assert error(reply) == (413, "message_too_large")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x91" * 60_000,
        b"\x81\xa1a" * 20_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdd\x00\x10\x00\x00" * 1000,
        b"\xc6\xff\xff\xff\xff",
        b'{"sequence": 0}',
        encode(block()) + b"\x00",
        b"\x80",
        b"\xc0",
        b"\x90",
        b"\x92\x00\xa0",
        b"\x92\xc3\x00",
        b"\x92\xff\x00",
        b"\x92\x00\xcf" + b"\xff" * 8,
        b"\x92\xcb\x7f\xf8" + bytes(6) + b"\x00",
        b"\xd4\x05\x00",
        b"\xd6\xff" + bytes(4),
    ],
)
async def test_bodies_that_are_no_message(raw: Raw, body: bytes) -> None:
    path = await raw.open()
    for method, route in ROUTES:
        reply = await raw.send(method, route.replace(f"/v1/sessions/{'0' * 32}", path), body)
        assert error(reply)[0] == 422
    reply = await raw.send("POST", f"{path}/verify", block())
    assert verdict(reply).settled is not None


@pytest.mark.parametrize(
    ("message", "say"),
    [
        (RegisterPair("0" * 64, ALIGNMENT.bitmap), "fetch its byte table"),
        (RegisterPair(VOCABULARY.fingerprint, b""), "bytes"),
        (RegisterPair(VOCABULARY.fingerprint, ALIGNMENT.bitmap + b"\x00"), "bytes"),
        (RegisterPair(VOCABULARY.fingerprint, bytes(len(ALIGNMENT.bitmap))), "no token"),
        (RegisterPair(VOCABULARY.fingerprint, b"\xff" * len(ALIGNMENT.bitmap)), "names id"),
    ],
)
async def test_pairs_that_are_refused(raw: Raw, message: RegisterPair, say: str) -> None:
    reply = await raw.send("PUT", "/v1/pairs", message)
    assert error(reply) == (422, "invalid_request")
    assert say in reply.json()["error"]["message"]


# Rounds.


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


# Truncate, extend, streams.


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


async def test_a_draining_server_ends_streams_and_opens_nothing() -> None:
    async with in_process(seconds_per_pass=0.001) as raw:
        path = await raw.open(method="autoregressive", max_tokens=4000, pair_id=None)
        task = asyncio.create_task(raw.send("POST", f"{path}/generate", Generate(0)))
        await until(lambda: raw.target.passes > 5)
        assert (await raw.client.get("/ready")).status_code == 200
        raw.host.draining = raw.host.closing = True
        assert frames((await task).content)[-1].error == "server_unavailable"
        reply = await raw.send("PUT", f"/v1/sessions/{'2' * 32}", opening())
        assert error(reply) == (503, "server_unavailable")
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
    logits = raw.target._logits
    raw.target._logits = lambda ids: 1 / 0  # type: ignore[assignment,return-value]
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


async def test_the_card_the_table_and_what_is_not_there(raw: Raw) -> None:
    card = (await raw.send("GET", "/v1/models")).json()
    assert card["models"][0]["vocabulary_fingerprint"] == VOCABULARY.fingerprint
    assert set(card["methods"]) == set(SERVER_HALVES)
    table = await raw.send("GET", f"/v1/vocabularies/{VOCABULARY.fingerprint}")
    assert type(VOCABULARY).from_bytes(table.content).fingerprint == VOCABULARY.fingerprint
    assert error(await raw.send("GET", "/v1/vocabularies/0")) == (404, "not_found")
    assert error(await raw.send("GET", "/v1/nothing")) == (404, "not_found")
    assert (await raw.send("GET", "/v1/pairs")).status_code == 405
    assert (await raw.send("PUT", "/v1/pairs", pair())).status_code == 200
