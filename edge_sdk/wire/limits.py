"""Bounds that every message is held to before anything is done with it."""

from __future__ import annotations

from typing import Final

PROTOCOL_VERSION: Final = 1

MAX_ROUND_BODY: Final = 64 * 1024  # bytes of a verify request
MAX_LAWS_BODY: Final = 16 * 1024 * 1024  # bytes of a verify that carries whole laws
MAX_OPEN_BODY: Final = 8 * 1024 * 1024  # bytes of an open or extend request
MAX_PAIR_BODY: Final = 256 * 1024  # bytes of a registered bitmap: 2**20 ids and a margin
MAX_REPLY_BODY: Final = 16 * 1024 * 1024  # bytes of a round's reply: a float64 law of 2**20 ids
MAX_TABLE_BODY: Final = 64 * 1024 * 1024  # bytes of a byte table

MAX_VOCABULARY: Final = 1 << 20  # ids
MAX_DRAFT: Final = 64  # drafted tokens a block
MAX_BLOCKS: Final = 4096  # further blocks of one rejected position
MAX_WINDOW: Final = 32  # blocks of a session in flight
MAX_TEXT: Final = 4 * 1024 * 1024  # characters of a prompt or message
MAX_TOKENS: Final = 1 << 20  # ids in one message
MAX_MESSAGES: Final = 1024  # turns of a chat
MAX_OPTIONS: Final = 16  # options of a method
MAX_SEQUENCE: Final = 2**53 - 1
