from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_sdk.vocab import Vocabulary
from edge_sdk.vocab.piece_index import PieceIndex
from edge_sdk.vocab.pieces import Pieces

TEXTS = st.lists(st.binary(max_size=3), unique=True)


def index_of(texts: list[bytes], ids: list[int] | None = None) -> PieceIndex:
    return PieceIndex(Pieces.of(texts), np.array(range(len(texts)) if ids is None else ids, int))


@pytest.fixture
def colliding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hashes for all byte strings."""
    for module in ("pieces", "piece_index"):
        monkeypatch.setattr(
            f"edge_sdk.vocab.{module}.hash", lambda piece: len(piece) % 2, raising=False
        )


@given(TEXTS, st.binary(max_size=3))
def test_the_same_as_a_dictionary(texts: list[bytes], other: bytes) -> None:
    index, expected = index_of(texts), {text: token for token, text in enumerate(texts)}
    assert dict(index) == expected
    assert list(index) == texts
    assert len(index) == len(expected)
    assert index.get(other) == expected.get(other)
    assert index.find(other) == expected.get(other)
    assert (other in index) == (other in expected)


def test_ids_that_were_not_given_are_not_found() -> None:
    index = index_of([b"a", b"b", b"c"], [0, 2])
    assert dict(index) == {b"a": 0, b"c": 2}
    with pytest.raises(KeyError):
        index[b"b"]


@given(TEXTS, TEXTS)
def test_shared_texts(ours: list[bytes], theirs: list[bytes]) -> None:
    found = index_of(ours).shared(index_of(theirs))
    assert sorted(found) == [
        (at, theirs.index(text)) for at, text in enumerate(ours) if text in theirs
    ]


@pytest.mark.usefixtures("colliding")
def test_texts_of_the_same_hash_are_told_apart() -> None:
    texts = [b"a", b"bb", b"b", b"cc", b"ccc"]
    index = index_of(texts, [0, 1, 2, 4])
    assert dict(index) == {b"a": 0, b"bb": 1, b"b": 2, b"ccc": 4}
    assert index.find(b"cc") is None
    assert index.find(b"d") is None
    assert sorted(index.shared(index_of([b"x", b"ccc", b"bb"]))) == [(1, 2), (4, 1)]
    vocabulary = Vocabulary.from_token_bytes(
        [b"1", b"a", b"1", b"b", b"a"], byte_fallback=[0], added=[1]
    )
    assert vocabulary.canonical.tolist() == [2, 4, 2, 3, 4]
    assert dict(vocabulary.ids_by_bytes) == {b"1": 2, b"b": 3, b"a": 4}
