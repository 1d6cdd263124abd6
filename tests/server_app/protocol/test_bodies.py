"""Bodies that are too long, or no message."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest
from harness.raw import KEY, ROUTES, Raw, block, error, opening, verdict

from edge_sdk.wire import Prompt, encode
from edge_sdk.wire.limits import MAX_OPEN_BODY, MAX_PAIR_BODY, MAX_ROUND_BODY


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
