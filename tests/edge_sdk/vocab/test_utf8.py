from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_sdk.vocab.utf8 import Utf8Decoder

BROKEN = st.binary(max_size=12)
MIXED = st.lists(
    st.one_of(BROKEN, st.text(max_size=4).map(lambda text: text.encode("utf-8", "replace"))),
    max_size=8,
)


@given(MIXED)
def test_pieces_give_the_text_of_the_whole(pieces: list[bytes]) -> None:
    decoder = Utf8Decoder()
    text = ""
    for piece in pieces:
        text += decoder.feed(piece)
        assert decoder.characters == len(text)
        assert decoder.pending <= 3
    text += decoder.flush()
    assert text == b"".join(pieces).decode("utf-8", "replace")
    assert decoder.characters == len(text)
    assert decoder.pending == 0


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_valid_text_never_shows_a_replacement_and_never_waits(text: str) -> None:
    decoder = Utf8Decoder()
    out = "".join(decoder.feed(bytes([byte])) for byte in text.encode())
    assert out == text
    assert decoder.pending == 0


@pytest.mark.parametrize("text", ["é", "ﾁ", "😀"])
def test_nothing_leaves_before_the_last_byte(text: str) -> None:
    decoder = Utf8Decoder()
    data = text.encode()
    for count, byte in enumerate(data[:-1], 1):
        assert decoder.feed(bytes([byte])) == ""
        assert decoder.pending == count
    assert decoder.feed(data[-1:]) == text


def test_bytes_that_can_never_be_valid_leave_at_once() -> None:
    decoder = Utf8Decoder()
    assert decoder.feed(b"\xff") == "\ufffd"
    assert decoder.feed(b"\xc3") == ""
    assert decoder.feed(b"a") == "\ufffda"
    assert decoder.feed(b"\xe2\x82") == ""
    assert decoder.flush() == "\ufffd"
    assert decoder.feed(b"\xac") == "\ufffd"


def test_feeding_nothing_changes_nothing() -> None:
    decoder = Utf8Decoder()
    assert decoder.feed(b"\xe2\x82") == ""
    assert decoder.feed(b"") == ""
    assert decoder.feed(b"\xac") == "€"
