"""Servers that answer nonsense: a `ProtocolError` that names it, and the text so far stands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import msgpack
import pytest
from harness.serving import GREEDY, PROMPT, QUICK, VOCABULARY, Serving, greedy_ids, related_draft

from edge_sdk import EdgeClient, Stream
from edge_sdk.errors import (
    ConnectionFailed,
    CosdError,
    ProtocolError,
    RateLimited,
    ServerAway,
    ServerFault,
    TransportError,
    error_for_code,
)
from edge_sdk.wire import Generated, Verdict, decode, encode

Change = Callable[[bytes], bytes | httpx.Response]


class Altering(httpx.AsyncBaseTransport):
    """Changes the replies to one kind of request, from the third on."""

    def __init__(self, path: str, change: Change, *, after: int = 2) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self._path = path
        self._change = change
        self._after = after
        self.seen = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        body = await response.aread()
        await response.aclose()
        if not request.url.path.endswith(self._path):
            return httpx.Response(response.status_code, content=body)
        self.seen += 1
        if self.seen <= self._after:
            return httpx.Response(response.status_code, content=body)
        changed = self._change(body)
        if isinstance(changed, bytes):
            return httpx.Response(200, stream=_Bytes(changed))
        return changed

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bytes(httpx.AsyncByteStream):
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._data), 65536):
            yield self._data[start : start + 65536]


@contextlib.asynccontextmanager
async def altered(
    server: Serving, path: str, change: Change, *, after: int = 2, **options: Any
) -> AsyncIterator[EdgeClient]:
    transport = Altering(path, change, after=after)
    async with (
        httpx.AsyncClient(transport=transport) as http,
        EdgeClient(
            server.url, draft=related_draft(), http_client=http, cache=None, retry=QUICK, **options
        ) as client,
    ):
        yield client
        assert transport.seen > after


def verdict(**changes: Any) -> Change:
    def change(body: bytes) -> bytes:
        message = decode(Verdict, body, limit=1 << 20)
        values = {
            name: value(message) if callable(value) else value for name, value in changes.items()
        }
        return encode(replace(message, **values))

    return change


@pytest.mark.parametrize(
    ("change", "say"),
    [
        (verdict(sequence=7), "answers 7, not 2"),
        (verdict(accepted=-1), "not stale"),
        (verdict(accepted=9), "accepts 9 of"),
        (verdict(accepted=2**62), "accepts"),
        (verdict(settled=len(VOCABULARY)), "outside the target's"),
        (verdict(settled=-1), "settles id -1"),
        (verdict(settled=None), "settles nothing"),
        (verdict(finish=9), "finish 9"),
        (verdict(rejection=b""), "rejection where none can be"),
        (verdict(accepted=0, settled=None, rejection=b"junk"), "left a rejected token"),
        (lambda body: b"", "cannot be read"),
        (lambda body: b"\xc1", "cannot be read"),
        (lambda body: b"\x91" * 5000, "cannot be read"),
        (lambda body: b"<html>hello</html>", "cannot be read"),
        (lambda body: msgpack.packb([1, "2"]), "Verdict.accepted"),
        (lambda body: msgpack.packb({"sequence": 1}), "expected an array"),
        (lambda body: bytes(17 * 1024 * 1024), "over the limit"),
        (lambda body: httpx.Response(200, content=b"", headers={"content-encoding": "x"}), "compr"),
        (lambda body: httpx.Response(302, headers={"location": "http://x/"}), "answered 302"),
        (lambda body: httpx.Response(404, content=b"nginx"), "answered 404"),
        (lambda body: httpx.Response(400, content=b'{"error": {"code": 1}}'), "answered 400"),
    ],
)
async def test_impossible_verdicts(server: Serving, change: Change, say: str) -> None:
    async with altered(server, "/verify", change) as client:
        stream = client.generate(PROMPT, method="greedy", max_tokens=60, gamma=3)
        with pytest.raises(ProtocolError, match=say):
            async for _ in stream:
                pass
    ids = [token.id for token in stream.tokens]
    assert len(ids) > 1
    assert ids == greedy_ids(server.target, PROMPT, len(ids))
    assert stream.text
    assert stream.finish is None


@pytest.mark.parametrize(
    ("status", "content"),
    [(500, b"[" * 100_000), (500, b"Internal Server Error"), (502, b'{"error": 1}'), (429, b"")],
)
async def test_what_only_a_proxy_says_is_asked_again(
    server: Serving, status: int, content: bytes
) -> None:
    said = iter([httpx.Response(status, content=content)])
    async with altered(server, "/verify", lambda body: next(said, body)) as client:
        stream = client.generate(PROMPT, method="greedy", max_tokens=60, gamma=3)
        async for _ in stream:
            pass
    assert len(stream.tokens) == 60
    assert stream.stats.retries == 1


async def test_a_proxy_whose_server_stays_away_is_named(server: Serving) -> None:
    away = httpx.Response(502, content=b"<html>bad gateway</html>")
    async with altered(server, "/verify", lambda body: away, offline="fail") as client:
        stream = client.generate(PROMPT, method="greedy", max_tokens=60, gamma=3)
        with pytest.raises(ServerAway, match=r"answered 502 .* a proxy answers so"):
            async for _ in stream:
                pass


async def read(stream: Stream) -> None:
    async for _ in stream:
        assert len(stream.tokens) <= stream._request.generation.max_tokens


async def test_a_server_that_never_ends_the_text(server: Serving) -> None:
    never = verdict(finish=lambda message: 0 if message.settled is not None else message.finish)
    async with altered(server, "/verify", never, after=0) as client:
        for count in range(5, 15):
            stream = client.generate(PROMPT, method="greedy", max_tokens=count, gamma=3)
            await read(stream)
            assert len(stream.tokens) == count
            assert stream.finish == "length"

    def past(body: bytes) -> bytes:
        return encode(replace(decode(Verdict, body, limit=999), finish=0, settled=97))

    async with altered(server, "/verify", past, after=0) as client:
        for count in range(5, 15):
            stream = client.generate(PROMPT, method="greedy", max_tokens=count, gamma=7)
            with contextlib.suppress(ProtocolError):
                await read(stream)
            assert len(stream.tokens) <= count


@pytest.mark.parametrize("method", ["hybrid", "candidates", "coupled", "full", "greedy"])
async def test_random_verdicts(server: Serving, method: str) -> None:
    rng = random.Random(method)

    def change(body: bytes) -> bytes:
        data = bytearray(body)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            data = data[: rng.randrange(len(data))]
        return bytes(data)

    errors = 0
    async with altered(server, "/verify", change, after=0) as client:
        for _ in range(60):
            stream = client.generate(PROMPT, method=method, max_tokens=9, gamma=3)
            try:
                await read(stream)
            except CosdError:
                errors += 1
    assert errors > 20


def frame(message: Generated) -> bytes:
    data = encode(message)
    return len(data).to_bytes(4, "little") + data


GOOD = frame(Generated(97)) + frame(Generated(98))


@pytest.mark.parametrize(
    ("tail", "kind", "say"),
    [
        (frame(Generated(None)), ProtocolError, "token None"),
        (frame(Generated(len(VOCABULARY))), ProtocolError, "token"),
        (frame(Generated(-5)), ProtocolError, "token -5"),
        (frame(Generated(97, 9)), ProtocolError, "finish 9"),
        (frame(Generated(97)) * 20, ProtocolError, "goes on after 6 tokens"),
        (b"\xff\xff\xff\xff", ProtocolError, "frame of"),
        (b"\x01\x00\x00\x00\xc1", ProtocolError, "cannot be read"),
        (frame(Generated(None, 0, "server_fault", "broken")), ServerFault, "broken"),
        (frame(Generated(None, 0, "from_the_future", "new")), CosdError, "new"),
    ],
)
async def test_impossible_streams(
    server: Serving, tail: bytes, kind: type[CosdError], say: str
) -> None:
    async with altered(server, "/generate", lambda body: GOOD + tail, after=0) as client:
        stream = client.generate(PROMPT, method="autoregressive", max_tokens=6)
        with pytest.raises(kind, match=say):
            async for _ in stream:
                pass
    assert [token.id for token in stream.tokens][:2] == [97, 98]


async def test_a_stream_that_ends_early_again_and_again(server: Serving) -> None:
    async with altered(server, "/generate", lambda body: b"", after=0) as client:
        stream = client.generate(PROMPT, method="autoregressive", sampling=GREEDY)
        with pytest.raises(ConnectionFailed, match="ended before"):
            async for _ in stream:
                pass


CARD = {
    "protocol": 1,
    "methods": ["greedy"],
    "models": [{"name": "x", "vocabulary_fingerprint": "0" * 64, "context": 9}],
}


@pytest.mark.parametrize(
    ("card", "say"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not JSON"),
        (b"{}", "no card"),
        (CARD | {"protocol": 2}, "protocol 2"),
        (CARD | {"models": []}, "no card"),
        (CARD | {"models": [{"name": "x"}]}, "no card"),
        (json.dumps(CARD).replace("9}", "Infinity}").encode(), "no card"),
        (json.dumps(CARD).replace("0" * 64, "../" * 21 + "x").encode(), "no SHA-256"),
        (b" " * (1 << 20) + b"{}", "over the limit"),
    ],
)
async def test_cards_that_are_none(server: Serving, card: Any, say: str) -> None:
    data = card if isinstance(card, bytes) else json.dumps(card).encode()
    with pytest.raises(ProtocolError, match=say):
        async with altered(server, "/v1/models", lambda body: data, after=0):
            pass


async def test_a_byte_table_of_another_vocabulary(server: Serving) -> None:
    from harness.serving import OTHER_VOCABULARY

    path = VOCABULARY.fingerprint
    for data, say in ((OTHER_VOCABULARY.to_bytes(), "fingerprint"), (b"junk", "byte table")):
        with pytest.raises(ProtocolError, match=say):
            async with altered(server, path, lambda body, data=data: data, after=0):
                pass


def refusal(code: str, **headers: bytes) -> httpx.Response:
    body = json.dumps({"error": {"code": code, "message": "say", "field": "f"}}).encode()
    return httpx.Response(error_for_code(code).status, content=body, headers=headers)


@pytest.mark.parametrize("after", ["0", "1000000000", "-1", "soon", "²"])
async def test_a_server_that_asks_to_wait(server: Serving, after: str) -> None:
    def change(body: bytes) -> httpx.Response:
        return refusal("rate_limited", **{"retry-after": after.encode("latin-1")})

    async with altered(server, "/verify", change) as client:
        stream = client.generate(PROMPT, method="greedy")
        with pytest.raises(RateLimited, match="say") as caught:
            async for _ in stream:
                pass
    assert caught.value.field == "f"
    assert stream.tokens


async def test_a_stream_that_is_to_wait_for_too_long(server: Serving) -> None:
    later = refusal("rate_limited", **{"retry-after": b"1000000000"})
    async with altered(server, "/generate", lambda body: later, after=0) as client:
        with pytest.raises(RateLimited, match="say"):
            async with asyncio.timeout(5):
                await client.complete(PROMPT, method="autoregressive")


async def test_errors_keep_their_class(server: Serving) -> None:
    for code in ("sequence_gap", "base_mismatch", "server_fault", "unauthorized", "not_yet_known"):
        async with altered(server, "/verify", lambda body, code=code: refusal(code)) as client:
            with pytest.raises(error_for_code(code), match="say") as caught:
                async for _ in client.generate(PROMPT, method="greedy"):
                    pass
        assert not isinstance(caught.value, TransportError)
