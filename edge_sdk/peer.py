"""What a client knows of its server: the card, the byte table, and V_C with its own draft."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from edge_sdk.errors import CosdError, ProtocolError
from edge_sdk.transport import Transport
from edge_sdk.vocab import Alignment, Vocabulary
from edge_sdk.wire import PROTOCOL_VERSION, RegisterPair

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Card:
    """The server's card.

    Attributes:
        model: name of the target.
        fingerprint: SHA-256 (hex) of the target's byte table.
        context: most tokens of prompt and text.
        methods: decoding methods that the server offers.
    """

    model: str
    fingerprint: str
    context: int
    methods: tuple[str, ...]

    @classmethod
    def read(cls, data: dict[str, Any]) -> Self:
        """Read the card of an untrusted server.

        Raises:
            ProtocolError: it is no card, or of another protocol version.
        """
        try:
            protocol = data["protocol"]
            model = data["models"][0]
            card = cls(
                model=str(model["name"]),
                fingerprint=str(model["vocabulary_fingerprint"]),
                context=int(model["context"]),
                methods=tuple(str(name) for name in data["methods"]),
            )
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise ProtocolError("the server's /v1/models is no card of a cosd server") from error
        if protocol != PROTOCOL_VERSION:
            raise ProtocolError(
                f"the server speaks protocol {protocol}, this SDK {PROTOCOL_VERSION}; "
                f"update the older one"
            )
        if len(card.fingerprint) != 64 or not set(card.fingerprint) <= set("0123456789abcdef"):
            raise ProtocolError("the server's vocabulary fingerprint is no SHA-256 in hex")
        return card


async def fetch_vocabulary(
    transport: Transport, fingerprint: str, cache: Path | None
) -> Vocabulary:
    """The target's vocabulary, from the cache folder if it was fetched before.

    Raises:
        ProtocolError: what the server sent has another fingerprint.
    """
    path = None if cache is None else cache / f"{fingerprint}.table"
    if path is not None and path.is_file():
        try:
            vocabulary = await asyncio.to_thread(_read, path.read_bytes(), fingerprint)
        except (CosdError, OSError) as error:
            log.warning("the cached byte table %s is not usable (%s); fetching it", path, error)
        else:
            return vocabulary
    data = await transport.vocabulary(fingerprint)
    vocabulary = await asyncio.to_thread(_read, data, fingerprint)
    if path is not None:
        await asyncio.to_thread(_store, path, data)
    return vocabulary


async def register(transport: Transport, alignment: Alignment, session_id: str) -> None:
    """Tell the server V_C; of several behind one address, the one that serves the session.

    Raises:
        ProtocolError: the server understood another pair.
    """
    reply = await transport.register_pair(
        RegisterPair(target_fingerprint=alignment.target_fingerprint, bitmap=alignment.bitmap),
        session_id,
    )
    if reply.pair_id != alignment.pair_id or reply.size != len(alignment):
        raise ProtocolError("the server registered another vocabulary pair than was sent")


def _read(data: bytes, fingerprint: str) -> Vocabulary:
    vocabulary = Vocabulary.from_bytes(data)
    if vocabulary.fingerprint != fingerprint:
        raise ProtocolError("the byte table does not have the fingerprint that was asked for")
    return vocabulary


def _store(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            file = Path(folder) / path.name
            file.write_bytes(data)
            file.replace(path)
    except OSError as error:
        log.warning("the byte table is not cached: %s", error)
