"""Messages over a WebSocket: one byte in front of a body (docs/wire.md).

The byte has the kind in its upper three bits and a slot in the lower five. A client puts a
request into any of the 32 slots that is free; every frame that answers it names that slot, and
the slot is free again after the reply, the error or the end. So replies may come in any order,
and no more requests can be in flight than the window has.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from edge_sdk.errors import CosdError, ProtocolError
from edge_sdk.wire.codec import decode, encode
from edge_sdk.wire.limits import MAX_WINDOW

SUBPROTOCOL: Final = "cosd.1"  # version of this framing, agreed on at the upgrade
SLOTS: Final = MAX_WINDOW
REPLY_HEAD: Final = 3  # bytes in front of the body of a reply
MAX_FAILURE: Final = 64 * 1024  # bytes of an error frame
_LONGEST: Final = 65504.0  # seconds that half precision can write

assert SLOTS <= 32, "a slot has five bits"


class Up(IntEnum):
    """Kinds of frames of a client; but for `CANCEL`, the message of the same name follows."""

    VERIFY = 0
    ASK = 1
    TRUNCATE = 2
    EXTEND = 3
    GENERATE = 4
    CANCEL = 5  # whoever made the request in this slot no longer waits; empty


class Down(IntEnum):
    """Kinds of frames of a server."""

    REPLY = 0  # two bytes of server seconds (half precision), then the message
    ERROR = 1  # a `Failure`
    TOKEN = 2  # a `Generated` of a stream; further frames follow
    END = 3  # the end of a stream, or of a request that was cancelled; empty


class Close(IntEnum):
    """Codes that a server of this protocol closes with, besides those of RFC 6455."""

    NORMAL = 1000
    TEXT = 1003  # a text frame came; messages are binary
    MALFORMED = 4400  # an empty frame, a kind that does not exist, or a slot that is in use
    IDLE = 4408  # nothing was asked for a while
    SLOW = 4429  # the replies were not read


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on the wire.

    Attributes:
        code: of the class in `edge_sdk.errors`.
        message: its sentence.
        field: the message field at fault.
        retry_after: seconds after which a new try makes sense.
    """

    code: str
    message: str
    field: str | None = None
    retry_after: float | None = None

    @classmethod
    def of(cls, error: CosdError) -> Self:
        return cls(error.code, error.message, error.field, error.retry_after)


def frame(kind: Up | Down, slot: int, body: bytes = b"") -> bytes:
    """A frame of any kind but a reply."""
    return bytes((kind << 5 | slot,)) + body


def reply(slot: int, body: bytes, seconds: float) -> bytes:
    """A reply on which the server spent `seconds`."""
    spent = struct.pack("<e", min(max(seconds, 0.0), _LONGEST))
    return bytes((Down.REPLY << 5 | slot,)) + spent + body


def failure(slot: int, error: CosdError) -> bytes:
    """An error as a frame."""
    return frame(Down.ERROR, slot, encode(Failure.of(error)))


def split(data: bytes) -> tuple[int, int]:
    """Kind and slot of a frame; the kind may be one that does not exist.

    Raises:
        ProtocolError: it is empty.
    """
    if not data:
        raise ProtocolError("a frame is empty")
    return data[0] >> 5, data[0] & 31


def read_reply(data: bytes) -> tuple[bytes, float]:
    """Body and server seconds of a reply.

    Raises:
        ProtocolError: it is too short, or the seconds are none.
    """
    if len(data) < REPLY_HEAD:
        raise ProtocolError(f"a reply has {len(data)} bytes, which is less than its head")
    (seconds,) = struct.unpack_from("<e", data, 1)
    if not 0 <= seconds <= _LONGEST:
        raise ProtocolError("a reply's server seconds are no time")
    return data[REPLY_HEAD:], seconds


def read_failure(data: bytes) -> Failure:
    """The content of an error frame.

    Raises:
        InvalidRequest: it is none.
    """
    return decode(Failure, data[1:], limit=MAX_FAILURE)


def wire_bytes(size: int, *, masked: bool) -> int:
    """Bytes on the wire of a frame of `size` bytes (RFC 6455, 5.2); clients mask."""
    length = 2 if size < 126 else 4 if size < 1 << 16 else 10
    return size + length + (4 if masked else 0)
