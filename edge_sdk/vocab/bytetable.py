"""Binary layout of a byte table: how a vocabulary crosses the wire and is hashed.

All integers are little-endian. Columns, not records, because they compress better:

    magic     8 bytes    b"COSDVOC1"
    count     u32        number of ids, V
    kinds     u8  [V]    `Kind` of each id
    lengths   u16 [V]    bytes of each piece
    pieces    bytes      all pieces, one after the other
    roles     u8         number of roles, then for each, by ascending code:
                         u8 code, u32 number of ids, u32 ids, main one first
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_sdk.errors import ProtocolError
from edge_sdk.vocab.pieces import Pieces

MAX_IDS = 1_000_000
MAX_RAW_BYTES = 64 << 20
MAX_COMPRESSED_BYTES = 32 << 20
MAX_PIECE_BYTES = 0xFFFF
MAX_ROLE_IDS = 4096

_MAGIC = b"COSDVOC1"
_LEVEL = 9


def pack(
    pieces: Sequence[bytes], kinds: NDArray[np.uint8], roles: Mapping[int, Sequence[int]]
) -> bytes:
    """Bytes of a table; the same table gives the same bytes on every platform.

    Args:
        pieces: bytes of each id, at most `MAX_PIECE_BYTES` each.
        kinds: uint8 [V].
        roles: ids by role code; roles without ids are left out.
    """
    packed = Pieces.of(pieces)
    lengths = packed.lengths.astype("<u2").tobytes()
    parts = [_MAGIC, struct.pack("<I", len(packed)), kinds.tobytes(), lengths, packed.block]
    held = [(code, tuple(ids)) for code, ids in sorted(roles.items()) if ids]
    parts.append(struct.pack("<B", len(held)))
    for code, ids in held:
        parts.append(struct.pack(f"<BI{len(ids)}I", code, len(ids), *ids))
    return b"".join(parts)


def compress(raw: bytes) -> bytes:
    """Compressed form. Other zlib builds may give other bytes, so hash `raw`, never this."""
    return zlib.compress(raw, _LEVEL)


def decompress(data: bytes) -> bytes:
    """Bounded inverse of `compress` for untrusted bytes.

    Raises:
        ProtocolError: not one whole zlib stream, or larger than `MAX_RAW_BYTES`.
    """
    if len(data) > MAX_COMPRESSED_BYTES:
        raise _broken(f"is {len(data)} bytes compressed, the limit is {MAX_COMPRESSED_BYTES}")
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(data, MAX_RAW_BYTES + 1)
    except zlib.error as error:
        raise _broken(f"is not zlib data ({error})") from error
    if len(raw) > MAX_RAW_BYTES:
        raise _broken(f"unpacks to more than {MAX_RAW_BYTES} bytes")
    if not inflater.eof:
        raise _broken("is cut short")
    if inflater.unused_data:
        raise _broken(f"is followed by {len(inflater.unused_data)} bytes that do not belong to it")
    return raw


def unpack(raw: bytes) -> tuple[Pieces, NDArray[np.uint8], dict[int, tuple[int, ...]]]:
    """Inverse of `pack` for untrusted bytes; sizes are checked before anything is built.

    Returns:
        pieces, kinds uint8 [V], and role ids by role code. What kinds and codes mean
        is left to the caller to check.

    Raises:
        ProtocolError: the layout does not hold.
    """
    reader = _Reader(raw)
    if reader.take(len(_MAGIC), "magic") != _MAGIC:
        raise _broken("does not begin with COSDVOC1, so it is of another protocol version")
    count = reader.u32("count")
    if not 0 < count <= MAX_IDS:
        raise _broken(f"names {count} ids, allowed are 1 to {MAX_IDS}")
    kinds = np.frombuffer(reader.take(count, "kinds"), dtype=np.uint8)
    lengths = np.frombuffer(reader.take(2 * count, "lengths"), dtype="<u2").astype(np.int64)
    pieces = Pieces(reader.take(int(lengths.sum()), "pieces"), lengths)
    roles: dict[int, tuple[int, ...]] = {}
    last = -1
    for _ in range(reader.u8("number of roles")):
        code = reader.u8("role code")
        if code <= last:
            raise _broken("lists its roles out of order")
        last = code
        size = reader.u32("role size")
        if not 0 < size <= MAX_ROLE_IDS:
            raise _broken(f"gives role {code} {size} ids, allowed are 1 to {MAX_ROLE_IDS}")
        roles[code] = struct.unpack(f"<{size}I", reader.take(4 * size, "role ids"))
    reader.finish()
    return pieces, kinds, roles


class _Reader:
    """Cursor that refuses to read past the end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def take(self, size: int, what: str) -> bytes:
        end = self._at + size
        if end > len(self._raw):
            raise _broken(f"ends inside its {what}")
        taken = self._raw[self._at : end]
        self._at = end
        return taken

    def u8(self, what: str) -> int:
        return self.take(1, what)[0]

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def finish(self) -> None:
        if self._at != len(self._raw):
            raise _broken(f"has {len(self._raw) - self._at} bytes after its end")


def _broken(what: str) -> ProtocolError:
    return ProtocolError(
        f"the vocabulary's byte table {what}; the server and this SDK do not fit together, "
        "or the reply was damaged"
    )
