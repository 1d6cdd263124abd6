"""A server's WebSocket, spoken to without the SDK."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

import httpx
from harness.raw import block, opening, pair
from harness.serving import PROMPT, Serving, greedy_ids
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from edge_sdk.wire import Verdict, decode, encode
from edge_sdk.wire.frames import SUBPROTOCOL, Down, Failure, Up, frame, read_failure, read_reply

LIMIT = 1 << 24


class RawSocket:
    """Frames up, frames down."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, kind: Up, slot: int, message: Any = b"") -> None:
        body = message if isinstance(message, bytes) else encode(message)
        await self.connection.send(frame(kind, slot, body))

    async def frame(self) -> tuple[int, int, bytes]:
        """Kind, slot and all of the next frame."""
        data = await self.connection.recv()
        assert isinstance(data, bytes)
        return data[0] >> 5, data[0] & 31, data

    async def verdict(self, slot: int) -> Verdict:
        kind, answered, data = await self.frame()
        assert (kind, answered) == (Down.REPLY, slot), data
        body, seconds = read_reply(data)
        assert seconds >= 0
        return decode(Verdict, body, limit=LIMIT)

    async def failure(self, slot: int) -> Failure:
        kind, answered, data = await self.frame()
        assert (kind, answered) == (Down.ERROR, slot), data
        return read_failure(data)


@contextlib.asynccontextmanager
async def dialled(
    server: Serving, session: str, *, key: str | None = None, **options: Any
) -> AsyncIterator[RawSocket]:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    values: dict[str, Any] = {
        "additional_headers": headers,
        "subprotocols": [Subprotocol(SUBPROTOCOL)],
        "compression": None,
        "ping_interval": None,
        "proxy": None,
        "max_size": LIMIT,
    }
    url = f"ws://127.0.0.1:{server.port}/v1/sessions/{session}/stream"
    async with connect(url, **values | options) as connection:
        yield RawSocket(connection)


async def opened(server: Serving, *, key: str | None = None, **changes: Any) -> str:
    """Id of a new session."""
    session = secrets.token_hex(16)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
        (await client.put("/v1/pairs", content=encode(pair()))).raise_for_status()
        reply = await client.put(f"/v1/sessions/{session}", content=encode(opening(**changes)))
        reply.raise_for_status()
    return session


async def lives(server: Serving) -> None:
    """The server still answers, over both transports."""
    async with httpx.AsyncClient(base_url=server.url) as client:
        assert (await client.get("/health")).status_code == 200
    session = await opened(server, method="greedy")
    async with dialled(server, session) as line:
        await line.send(Up.VERIFY, 0, block(q=None))
        assert (await line.verdict(0)).settled == greedy_ids(server.target, PROMPT, 1)[0]
