"""Packed ids, q and laws."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_sdk.errors import InvalidRequest
from edge_sdk.wire.packing import (
    LAW_FORMATS,
    pack_draft,
    pack_law,
    rank_width,
    unpack_draft,
    unpack_law,
)

SIZES = st.sampled_from([1, 2, 255, 256, 257, 65_536, 65_537, 1 << 20])


@pytest.mark.parametrize(
    ("size", "width"),
    [(1, 1), (2, 1), (256, 1), (257, 2), (46_145, 2), (65_536, 2), (65_537, 3), (1 << 20, 3)],
)
def test_a_rank_takes_as_few_bytes_as_it_can(size: int, width: int) -> None:
    assert rank_width(size) == width
    assert (size - 1) < 256**width


@given(st.data(), SIZES, st.booleans())
def test_drafts_come_back(data: st.DataObject, size: int, with_q: bool) -> None:
    count = data.draw(st.integers(0, 64))
    ranks = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=count, max_size=count)))
    ranks = ranks.astype(np.int64)
    q = np.array(
        data.draw(st.lists(st.integers(1, 1 << 24), min_size=count, max_size=count)), np.int64
    )
    packed = pack_draft(ranks, q if with_q else None, size=size)
    assert len(packed) == count * (rank_width(size) + 3 * with_q)
    got, numerators = unpack_draft(packed, size=size, with_q=with_q)
    assert got.tolist() == ranks.tolist()
    assert numerators is None if not with_q else (numerators is not None)
    if numerators is not None:
        assert numerators.tolist() == q.tolist()


@given(st.binary(max_size=400), SIZES, st.booleans())
def test_any_bytes_are_a_draft_or_an_error(data: bytes, size: int, with_q: bool) -> None:
    with contextlib.suppress(InvalidRequest):
        ranks, numerators = unpack_draft(data, size=size, with_q=with_q)
        assert len(ranks) <= 64
        assert ((ranks >= 0) & (ranks < size)).all()
        assert (numerators is not None) == with_q
        if numerators is not None:
            assert len(numerators) == len(ranks)
            assert ((numerators >= 1) & (numerators <= 1 << 24)).all()


@pytest.mark.parametrize(
    ("data", "say"),
    [(b"\x00", "no multiple"), (b"\x05" + bytes(3), "outside the 5"), (bytes(65 * 4), "over the")],
)
def test_bad_drafts_are_named(data: bytes, say: str) -> None:
    with pytest.raises(InvalidRequest, match=say) as caught:
        unpack_draft(data, size=5, with_q=True)
    assert caught.value.field == "draft"


@pytest.mark.parametrize("law_format", LAW_FORMATS)
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("size", [1, 7, 300, 70_000])
def test_laws_come_back_in_the_shorter_form(law_format: str, zeros: float, size: int) -> None:
    rng = np.random.default_rng(size)
    law = rng.random(size)
    law[rng.random(size) < zeros] = 0.0
    law /= max(law.sum(), 1.0)
    packed = pack_law(law, law_format)
    rounded = law.astype(LAW_FORMATS[law_format])
    assert np.array_equal(unpack_law(packed, law_format, size=size), rounded.astype(np.float64))
    item = LAW_FORMATS[law_format].itemsize
    sparse = np.count_nonzero(rounded) * (rank_width(size) + item)
    assert len(packed) == 1 + min(sparse, size * item)


@given(st.binary(max_size=60), st.sampled_from(list(LAW_FORMATS)), st.sampled_from([1, 5, 9]))
def test_any_bytes_are_a_law_or_an_error(data: bytes, law_format: str, size: int) -> None:
    with contextlib.suppress(InvalidRequest):
        law = unpack_law(data, law_format, size=size)
        assert law.shape == (size,)
        assert ((law >= 0) & (law <= 1 + 1e-6)).all()


def _dense(*values: float) -> bytes:
    return b"\x00" + np.array(values, dtype="<f4").tobytes()


def _sparse(ranks: list[int], values: list[float]) -> bytes:
    return b"\x01" + bytes(ranks) + np.array(values, dtype="<f4").tobytes()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02" + bytes(12),
        _dense(0.5, 0.5),
        _dense(0.5, 0.5, 0.0, 0.0),
        _dense(float("nan"), 0.5, 0.5),
        _dense(-0.1, 0.5, 0.5),
        _dense(1.5, 0.0, 0.0),
        _dense(float("inf"), 0.0, 0.0),
        _sparse([3], [1.0]),
        _sparse([1, 0], [0.5, 0.5]),
        _sparse([1, 1], [0.5, 0.5]),
        _sparse([0], [float("nan")]),
        _sparse([0, 2], [1.0]),
    ],
)
def test_bad_laws_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="law") as caught:
        unpack_law(data, "f32", size=3)
    assert caught.value.field == "law"
