from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_sdk.vocab.pieces import Pieces

TEXTS = (b"a", b"", b"bc", b"\xff\x00", b"a" * 300)


@given(st.lists(st.binary(max_size=300)))
def test_a_sequence_like_the_one_it_was_made_of(texts: list[bytes]) -> None:
    pieces = Pieces.of(texts)
    assert pieces == texts
    assert tuple(texts) == pieces
    assert pieces == Pieces.of(iter(texts))
    assert len(pieces) == len(texts)
    assert [pieces[index] for index in range(-len(texts), len(texts))] == [*texts, *texts]
    assert pieces.lengths.tolist() == [len(text) for text in texts]
    assert pieces.hashes().tolist() == [hash(text) for text in texts]
    assert pieces.block == b"".join(texts)


@given(st.slices(len(TEXTS)))
def test_slices(part: slice) -> None:
    assert Pieces.of(TEXTS)[part] == TEXTS[part]


@pytest.mark.parametrize("index", [len(TEXTS), -len(TEXTS) - 1, 10**9])
def test_ids_that_do_not_exist(index: int) -> None:
    with pytest.raises(IndexError, match="there are 5"):
        Pieces.of(TEXTS)[index]


def test_numbers_of_an_array_are_ids_too() -> None:
    assert Pieces.of(TEXTS)[np.int64(2)] == b"bc"


@pytest.mark.parametrize(
    "other", [[b"ab", b"c"], [b"a", b"bc", b""], [b"a"], [b"a", b"bd"], [b"a", "bc"], "ab", 7, None]
)
def test_what_it_is_not_equal_to(other: object) -> None:
    assert Pieces.of([b"a", b"bc"]) != other
    if isinstance(other, list) and all(isinstance(piece, bytes) for piece in other):
        assert Pieces.of([b"a", b"bc"]) != Pieces.of(other)


def test_packing_twice_copies_nothing() -> None:
    pieces = Pieces.of(TEXTS)
    assert Pieces.of(pieces) is pieces
