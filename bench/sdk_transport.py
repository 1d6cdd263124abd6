"""A transport that can send a client's latest verify once more."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Any

from edge_sdk.link import Link
from edge_sdk.transport import Transport
from edge_sdk.transport.exchange import Exchange
from edge_sdk.transport.tries import Wait
from edge_sdk.wire import (
    Generate,
    Generated,
    Open,
    Opened,
    PairRegistered,
    RegisterPair,
    Verdict,
    Verify,
)
from edge_sdk.wire.frames import Up


class EchoTransport(Transport):
    """Another transport, whose latest verify is remembered.

    Args:
        inner: what requests go through.
    """

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner._tries)
        self._inner = inner
        self._latest: tuple[str, Verify] | None = None

    @property
    def inner(self) -> Transport:
        return self._inner

    @property
    def link(self) -> Link:
        return self._inner.link

    async def echo(self) -> float:
        """Seconds of the latest verify sent again, the server's own time taken off. The server
        answers it from its memory.

        Raises:
            LookupError: there was none.
        """
        if self._latest is None:
            raise LookupError("no verify was sent yet")
        begin = time.perf_counter()
        _, exchange = await self._inner.verify(*self._latest)
        return time.perf_counter() - begin - exchange.server_seconds

    async def verify(self, session_id: str, message: Verify) -> tuple[Verdict, Exchange]:
        self._latest = (session_id, message)
        return await self._inner.verify(session_id, message)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def card(self) -> dict[str, Any]:
        return await self._inner.card()

    async def vocabulary(self, fingerprint: str) -> bytes:
        return await self._inner.vocabulary(fingerprint)

    async def register_pair(
        self, message: RegisterPair, session_id: str | None = None
    ) -> PairRegistered:
        return await self._inner.register_pair(message, session_id)

    async def open(self, session_id: str, message: Open) -> Opened:
        return await self._inner.open(session_id, message)

    async def close_session(self, session_id: str) -> None:
        await self._inner.close_session(session_id)

    def generate(
        self, session_id: str, message: Generate
    ) -> AsyncGenerator[tuple[Generated, Exchange], None]:
        return self._inner.generate(session_id, message)

    async def _once(
        self, kind: Up, session_id: str, body: bytes, *, limit: int, wait: Wait
    ) -> tuple[bytes, Exchange]:
        return await self._inner._once(kind, session_id, body, limit=limit, wait=wait)
