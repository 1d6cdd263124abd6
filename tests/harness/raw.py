"""A server in process, spoken to without the SDK."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import numpy as np
from harness.serving import PROMPT, VOCABULARY, related_draft, toy_target
from pydantic import SecretStr

from edge_sdk.sampling import Sampling
from edge_sdk.vocab import Alignment
from edge_sdk.wire import (
    PROTOCOL_VERSION,
    Generated,
    Generation,
    Open,
    Prompt,
    RegisterPair,
    Verdict,
    Verify,
    decode,
    encode,
)
from edge_sdk.wire.packing import pack_draft
from server_app.app import create_app
from server_app.host import Host
from server_app.settings import Settings
from server_app.target.toy import ToyTarget

KEY, OTHER_KEY = "key-of-one", "key-of-two"
ALIGNMENT = Alignment.between(target=VOCABULARY, draft=related_draft().vocabulary)


# Those that take a message.
ROUTES = [
    ("PUT", "/v1/pairs"),
    ("PUT", f"/v1/sessions/{'0' * 32}"),
    ("POST", f"/v1/sessions/{'0' * 32}/verify"),
    ("POST", f"/v1/sessions/{'0' * 32}/truncate"),
    ("POST", f"/v1/sessions/{'0' * 32}/extend"),
    ("POST", f"/v1/sessions/{'0' * 32}/generate"),
]


class Raw:
    """Requests as bytes."""

    def __init__(self, client: httpx.AsyncClient, host: Host, target: ToyTarget) -> None:
        self.client = client
        self.host = host
        self.target = target

    async def send(
        self, method: str, path: str, message: Any = b"", *, key: str | None = KEY
    ) -> httpx.Response:
        body = message if isinstance(message, bytes) else encode(message)
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return await self.client.request(method, path, content=body, headers=headers)

    async def register(self) -> None:
        reply = await self.send("PUT", "/v1/pairs", pair())
        assert reply.status_code == 200

    async def open(self, **changes: Any) -> str:
        """A new session; returns its path."""
        path = f"/v1/sessions/{secrets.token_hex(16)}"
        reply = await self.send("PUT", path, opening(**changes))
        assert reply.status_code == 200, reply.text
        return path


def pair() -> RegisterPair:
    return RegisterPair(VOCABULARY.fingerprint, ALIGNMENT.bitmap)


def opening(
    *,
    method: str = "hybrid",
    sampling: Sampling | None = None,
    max_tokens: int = 64,
    seed: int = 3,
    options: dict[str, Any] | None = None,
    **changes: Any,
) -> Open:
    values: dict[str, Any] = {
        "protocol": PROTOCOL_VERSION,
        "pair_id": ALIGNMENT.pair_id,
        "prompt": Prompt(text=PROMPT),
        "generation": Generation(
            method=method,
            sampling=sampling or Sampling(temperature=0.0 if method == "greedy" else 1.0),
            max_tokens=max_tokens,
            seed=seed,
            options={"law_format": "f32"}
            if method == "hybrid" and options is None
            else options or {},
        ),
    }
    return Open(**values | changes)


def block(
    *ranks: int, sequence: int = 0, base: int = 0, q: float | None = 0.5, **rest: Any
) -> Verify:
    """A verify of drafted ranks, with q(x) for `hybrid` or None for `greedy`."""
    numerators = None if q is None else np.full(len(ranks), int(q * 2**24))
    draft = pack_draft(np.array(ranks, dtype=np.int64), numerators, size=len(ALIGNMENT))
    return Verify(sequence, base, draft if ranks else b"", **rest)


@contextlib.asynccontextmanager
async def in_process(
    *, settings: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Raw]:
    """A server without a socket.

    Args:
        settings: of the server.
        options: of the toy target.
    """
    target = toy_target(**options)
    keys = (SecretStr(KEY), SecretStr(OTHER_KEY))
    app = create_app(target, Settings(api_keys=keys, target="toy:1", **settings or {}))
    # An error that the app does not handle is raised here and fails the test.
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://cosd") as client,
    ):
        raw = Raw(client, app.state.host, target)
        await raw.register()
        yield raw


def error(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


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


def ranks(ids: Sequence[int]) -> list[int]:
    found: list[int] = ALIGNMENT.rank_of_target[list(ids)].tolist()
    assert min(found, default=0) >= 0
    return found
