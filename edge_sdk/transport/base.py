"""What a client asks of its server, however it travels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import Any, Final, TypeVar

from edge_sdk.errors import InvalidRequest, ProtocolError
from edge_sdk.link import Link
from edge_sdk.transport.exchange import Exchange
from edge_sdk.transport.tries import Tries, Wait
from edge_sdk.wire import (
    Answer,
    Ask,
    Extend,
    Extended,
    Generate,
    Generated,
    Open,
    Opened,
    PairRegistered,
    RegisterPair,
    Truncate,
    Truncated,
    Verdict,
    Verify,
    decode,
    encode,
    limits,
)
from edge_sdk.wire.frames import Up

MAX_SMALL_REPLY: Final = 1024 * 1024  # bytes of a reply that is no round's

R = TypeVar("R")


class Transport(ABC):
    """One server. Requests of one session may be in flight together: their numbers, not the
    order in which they arrive, say in which order they take effect.

    Every request but `generate` is sent again when it fails in a way that a new try may mend.

    Raises, from every request:
        TransportError: nothing usable came back.
        CosdError: the server refused; of the class that it named.
        InvalidRequest: the transport was closed.
    """

    def __init__(self, tries: Tries) -> None:
        self._tries = tries

    @property
    def retries(self) -> int:
        """Requests sent again."""
        return self._tries.retries

    @property
    @abstractmethod
    def link(self) -> Link:
        """What the link is like, as far as it is known."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close connections; every later request is refused. Idempotent."""

    @abstractmethod
    async def card(self) -> dict[str, Any]:
        """The server's card (`GET /v1/models`) as JSON."""

    @abstractmethod
    async def vocabulary(self, fingerprint: str) -> bytes:
        """The compressed byte table of the target."""

    @abstractmethod
    async def register_pair(
        self, message: RegisterPair, session_id: str | None = None
    ) -> PairRegistered:
        """Tell the server V_C; of several behind one address, the one that serves a session."""

    @abstractmethod
    async def open(self, session_id: str, message: Open) -> Opened:
        """Begin a session."""

    @abstractmethod
    async def close_session(self, session_id: str) -> None:
        """End a session."""

    @abstractmethod
    def generate(
        self, session_id: str, message: Generate
    ) -> AsyncGenerator[tuple[Generated, Exchange], None]:
        """Tokens of the server alone, as they come; not asked for again, since the caller knows
        how far the text has come."""

    async def verify(self, session_id: str, message: Verify) -> tuple[Verdict, Exchange]:
        return await self._asked(Up.VERIFY, session_id, message, Verdict, wait="reply")

    async def ask(self, session_id: str, message: Ask) -> tuple[Answer, Exchange]:
        return await self._asked(Up.ASK, session_id, message, Answer, wait="reply")

    async def truncate(self, session_id: str, message: Truncate) -> Truncated:
        reply, _ = await self._asked(Up.TRUNCATE, session_id, message, Truncated, wait="setup")
        return reply

    async def extend(self, session_id: str, message: Extend) -> Extended:
        reply, _ = await self._asked(Up.EXTEND, session_id, message, Extended, wait="setup")
        return reply

    @abstractmethod
    async def _once(
        self, kind: Up, session_id: str, body: bytes, *, limit: int, wait: Wait
    ) -> tuple[bytes, Exchange]:
        """One try of one numbered request: the body of its reply, of at most `limit` bytes."""

    async def _asked(
        self, kind: Up, session_id: str, message: Any, reply: type[R], *, wait: Wait
    ) -> tuple[R, Exchange]:
        # The same bytes every time, so that the server knows the request again.
        body = encode(message)
        limit = limits.MAX_REPLY_BODY if wait == "reply" else MAX_SMALL_REPLY
        data, exchange = await self._tries.until_done(
            lambda: self._once(kind, session_id, body, limit=limit, wait=wait), wait=wait
        )
        return decoded(reply, data, limit), exchange


def decoded(reply: type[R], data: bytes, limit: int) -> R:
    """Read what a server sent.

    Raises:
        ProtocolError: it cannot be read.
    """
    try:
        return decode(reply, data, limit=limit)
    except InvalidRequest as error:
        raise ProtocolError(f"the server's reply cannot be read: {error}") from error
