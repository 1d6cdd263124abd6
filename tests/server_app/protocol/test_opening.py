"""Pairs and openings: which are refused, and what a second opening is told."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import msgpack
import pytest
from harness.raw import ALIGNMENT, Raw, error, opening
from harness.serving import VOCABULARY

from edge_sdk.chat import Message
from edge_sdk.sampling import Sampling
from edge_sdk.wire import Prompt, RegisterPair, encode


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


@pytest.mark.parametrize("opened", [True, False])
async def test_an_opening_that_its_closing_overtook_leaves_nothing(raw: Raw, opened: bool) -> None:
    path = f"/v1/sessions/{secrets.token_hex(16)}"
    if opened:
        assert (await raw.send("PUT", path, opening())).status_code == 200
    assert (await raw.send("DELETE", path)).status_code == 204
    reply = await raw.send("PUT", path, opening())
    assert error(reply) == (410, "session_lost")
    assert "closed already" in reply.json()["error"]["message"]
    assert raw.host.sessions == 0


async def test_closing_while_the_prompt_is_read(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = asyncio.Event(), asyncio.Event()
    session = raw.host._opening.session

    async def slow(*args: Any) -> Any:
        reading.set()
        await go_on.wait()
        return await session(*args)

    monkeypatch.setattr(raw.host._opening, "session", slow)
    path = f"/v1/sessions/{secrets.token_hex(16)}"
    opened = asyncio.create_task(raw.send("PUT", path, opening()))
    await reading.wait()
    assert (await raw.send("DELETE", path)).status_code == 204
    go_on.set()
    assert error(await opened) == (410, "session_lost")
    assert raw.host.sessions == 0


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
