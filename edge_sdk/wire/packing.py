"""Packed numbers: drafted ids with their q, and laws over V_C.

A drafted id is its rank in V_C, in as few whole bytes as |V_C| needs; q is its numerator
on the grid of 2**-24 less one, in three bytes, so 0, NaN and more than 1 cannot be
written. All integers are little-endian.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from edge_sdk.errors import InvalidRequest
from edge_sdk.wire import limits

LawFormat = Literal["f16", "f32", "f64"]
LAW_FORMATS: Final[dict[str, np.dtype[np.floating]]] = {
    "f16": np.dtype("<f2"),
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
}
_DENSE, _SPARSE = 0, 1
_Q_BYTES = 3


def rank_width(size: int) -> int:
    """Bytes of one rank among `size`."""
    return max(1, math.ceil((size - 1).bit_length() / 8))


def pack_integers(values: NDArray[np.integer], width: int) -> bytes:
    """Each value in `width` little-endian bytes."""
    wide = np.ascontiguousarray(values, dtype="<u4").view(np.uint8).reshape(-1, 4)
    return wide[:, :width].tobytes()


def unpack_integers(data: bytes, width: int) -> NDArray[np.int64]:
    wide = np.zeros((len(data) // width, 4), dtype=np.uint8)
    wide[:, :width] = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
    return wide.reshape(-1).view("<u4").astype(np.int64)


def pack_draft(
    ranks: NDArray[np.integer], numerators: NDArray[np.integer] | None, *, size: int
) -> bytes:
    """Ranks [gamma] in V_C of `size`, then, if given, the grid numerators [gamma] of q(x)."""
    ids = pack_integers(ranks, rank_width(size))
    return ids if numerators is None else ids + pack_integers(numerators - 1, _Q_BYTES)


def unpack_draft(
    data: bytes, *, size: int, with_q: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Ranks [gamma] and grid numerators [gamma] (within 1 ... 2**24) of an untrusted block.

    Raises:
        InvalidRequest: the length does not fit, a rank is outside V_C, or there are more
            than `MAX_DRAFT` tokens.
    """
    width = rank_width(size)
    item = width + (_Q_BYTES if with_q else 0)
    count, rest = divmod(len(data), item)
    if rest:
        raise InvalidRequest(
            f"draft has {len(data)} bytes, which is no multiple of the {item} bytes a token of "
            f"this method and vocabulary pair",
            field="draft",
        )
    if count > limits.MAX_DRAFT:
        raise InvalidRequest(
            f"{count} drafted tokens are over the limit of {limits.MAX_DRAFT} a block",
            field="draft",
        )
    ranks = unpack_integers(data[: count * width], width)
    if count and int(ranks.max()) >= size:
        raise InvalidRequest(
            f"drafted rank {int(ranks.max())} is outside the {size} common tokens", field="draft"
        )
    return ranks, unpack_integers(data[count * width :], _Q_BYTES) + 1 if with_q else None


def unpack_ranks(data: bytes, *, size: int, field: str) -> NDArray[np.int64]:
    """Ranks [n] in V_C of `size` of an untrusted message.

    Raises:
        InvalidRequest: the length does not fit, or a rank is outside V_C.
    """
    width = rank_width(size)
    if len(data) % width:
        raise InvalidRequest(
            f"{field} has {len(data)} bytes, which is no multiple of {width}", field=field
        )
    ranks = unpack_integers(data, width)
    if len(ranks) and int(ranks.max()) >= size:
        raise InvalidRequest(
            f"{field}: rank {int(ranks.max())} is outside the {size} common tokens", field=field
        )
    return ranks


def pack_tokens(
    ids: NDArray[np.integer], probabilities: NDArray[np.floating], law_format: str, *, size: int
) -> bytes:
    """Target ids [n], then their probabilities [n], none of which is rounded to zero."""
    dtype = LAW_FORMATS[law_format]
    values = np.maximum(probabilities.astype(dtype), np.finfo(dtype).smallest_subnormal)
    return pack_integers(ids, rank_width(size)) + values.tobytes()


def unpack_tokens(
    data: bytes, law_format: str, *, size: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Target ids [n] below `size` and probabilities [n] of an untrusted reply.

    Raises:
        InvalidRequest: the length does not fit, an id is out of range, or a value is not a
            probability.
    """
    width, dtype = rank_width(size), LAW_FORMATS[law_format]
    count, rest = divmod(len(data), width + dtype.itemsize)
    if rest:
        raise InvalidRequest(f"{len(data)} bytes are no whole number of tokens", field="tokens")
    ids = unpack_integers(data[: count * width], width)
    values = _floats(data[count * width :], dtype)
    if count and int(ids.max()) >= size:
        raise InvalidRequest(
            f"id {int(ids.max())} is outside the target's {size} tokens", field="tokens"
        )
    if not bool(((values >= 0) & (values <= 1 + 1e-6)).all()):
        raise InvalidRequest("a token has a value that is no probability", field="tokens")
    return ids, values


def pack_grid_law(numerators: NDArray[np.integer]) -> bytes:
    """A law [size] on the grid of 2**-24: which ids have mass (their ranks or a bitmap,
    whichever is shorter), then numerator less one in three bytes for each."""
    held = np.flatnonzero(numerators)
    width = rank_width(len(numerators))
    values = pack_integers(numerators[held] - 1, _Q_BYTES)
    if len(held) * width < (len(numerators) + 7) // 8:
        where = bytes([_SPARSE]) + len(held).to_bytes(4, "little") + pack_integers(held, width)
    else:
        where = bytes([_DENSE]) + np.packbits(numerators != 0, bitorder="little").tobytes()
    return where + values


def unpack_grid_laws(data: bytes, *, size: int, count: int) -> list[NDArray[np.int64]]:
    """`count` grid laws [size] that follow each other in an untrusted request.

    Raises:
        InvalidRequest: the length does not fit, ranks are out of range or not ascending, or
            a law does not sum to 1.
    """
    laws = []
    at = 0
    for _ in range(count):
        law, at = _unpack_grid_law(data, at, size)
        laws.append(law)
    if at != len(data):
        raise InvalidRequest(f"{len(data) - at} bytes follow the draft's laws", field="draft")
    return laws


def _unpack_grid_law(data: bytes, at: int, size: int) -> tuple[NDArray[np.int64], int]:
    kind, at = data[at : at + 1], at + 1
    if kind == bytes([_SPARSE]):
        width = rank_width(size)
        held = int.from_bytes(data[at : at + 4], "little")
        at += 4
        if held > size or len(data) < at + held * (width + _Q_BYTES):
            raise InvalidRequest("a law of the draft is cut short", field="draft")
        ranks = unpack_integers(data[at : at + held * width], width)
        at += held * width
        if held and (int(ranks[-1]) >= size or bool((np.diff(ranks) <= 0).any())):
            raise InvalidRequest("a law of the draft has ranks out of order", field="draft")
    elif kind == bytes([_DENSE]) and len(data) >= at + (size + 7) // 8:
        bitmap = np.frombuffer(data, dtype=np.uint8, count=(size + 7) // 8, offset=at)
        at += (size + 7) // 8
        ranks = np.flatnonzero(np.unpackbits(bitmap, bitorder="little"))
        if len(ranks) and int(ranks[-1]) >= size:
            raise InvalidRequest("a law of the draft names ids past its end", field="draft")
        if len(data) < at + len(ranks) * _Q_BYTES:
            raise InvalidRequest("a law of the draft is cut short", field="draft")
    else:
        raise InvalidRequest("a law of the draft cannot be read", field="draft")
    law = np.zeros(size, dtype=np.int64)
    law[ranks] = unpack_integers(data[at : at + len(ranks) * _Q_BYTES], _Q_BYTES) + 1
    if int(law.sum()) != 1 << 24:
        raise InvalidRequest(
            f"a law of the draft sums to {int(law.sum())} / 2**24, not to 1", field="draft"
        )
    return law, at + len(ranks) * _Q_BYTES


def pack_law(law: NDArray[np.floating], law_format: str) -> bytes:
    """A law [size] in the given format: all values, or the ranks and values that are not
    zero, whichever is shorter."""
    values = law.astype(LAW_FORMATS[law_format])
    nonzero = np.flatnonzero(values)
    width = rank_width(len(law))
    if len(nonzero) * (width + values.itemsize) < values.nbytes:
        return bytes([_SPARSE]) + pack_integers(nonzero, width) + values[nonzero].tobytes()
    return bytes([_DENSE]) + values.tobytes()


def unpack_law(data: bytes, law_format: str, *, size: int) -> NDArray[np.float64]:
    """Law [size] in float64 of an untrusted reply.

    Raises:
        InvalidRequest: the length does not fit, ranks are out of range or not ascending, or
            a value is not a probability.
    """
    dtype = LAW_FORMATS[law_format]
    body = data[1:]
    if data[:1] == bytes([_DENSE]) and len(body) == size * dtype.itemsize:
        law = _floats(body, dtype)
    elif data[:1] == bytes([_SPARSE]) and len(body) % (rank_width(size) + dtype.itemsize) == 0:
        width = rank_width(size)
        count = len(body) // (width + dtype.itemsize)
        ranks = unpack_integers(body[: count * width], width)
        if count and (int(ranks[-1]) >= size or bool((np.diff(ranks) <= 0).any())):
            raise InvalidRequest("a sparse law has ranks out of order or range", field="law")
        law = np.zeros(size)
        law[ranks] = np.frombuffer(body[count * width :], dtype=dtype)
    else:
        raise InvalidRequest(f"a law of {len(data)} bytes does not fit {size} tokens", field="law")
    if not bool(((law >= 0) & (law <= 1 + 1e-6)).all()):
        raise InvalidRequest("a law has values that are no probabilities", field="law")
    return law


def _floats(data: bytes, dtype: np.dtype[np.floating]) -> NDArray[np.float64]:
    """Widened values; a NaN of any kind stays one, for the caller to refuse."""
    with np.errstate(invalid="ignore"):
        return np.frombuffer(data, dtype=dtype).astype(np.float64)
