"""From tokens to the text that leaves."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_sdk.tokens import Origin, Token
from edge_sdk.transcript import Transcript


def tokens(*pieces: bytes) -> list[Token]:
    return [Token(number, piece, Origin.SETTLED) for number, piece in enumerate(pieces)]


def test_half_a_character_waits_for_the_other_half() -> None:
    transcript = Transcript()
    data = "aß€😀".encode()
    texts = [transcript.feed(tokens(bytes([byte]))).text for byte in data]
    assert texts == ["a", "", "ß", "", "", "€", "", "", "", "😀"]
    assert transcript.close().text == ""
    assert transcript.text == "aß€😀"


def test_half_a_character_at_the_end_becomes_a_replacement() -> None:
    transcript = Transcript()
    assert transcript.feed(tokens(b"a", b"\xe2\x82")).text == "a"
    assert transcript.close().text == "�"


def test_a_stop_string_across_tokens() -> None:
    transcript = Transcript(["the end"])
    assert transcript.feed(tokens(b"now th", b"e e")).text == "now "
    assert not transcript.stopped
    piece = transcript.feed(tokens(b"nd of", b" this"))
    assert (piece.text, len(piece.tokens)) == ("", 1)
    assert transcript.stopped
    assert transcript.feed(tokens(b"more")).tokens == []
    assert transcript.close().text == ""
    assert transcript.text == "now "
    assert len(transcript.tokens) == 3
    assert transcript.tokens_kept == 0


def test_what_only_looked_like_a_stop_string_is_released() -> None:
    transcript = Transcript(["abc"])
    assert transcript.feed(tokens(b"xab")).text == "x"
    assert transcript.feed(tokens(b"d")).text == "abd"
    assert transcript.feed(tokens(b"ab")).text == ""
    assert transcript.close().text == "ab"
    assert transcript.tokens_kept == 3


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"a", b"ab", "ß".encode(), b"\xc3", b"\x9f", b" ", b""])))
def test_any_cut_gives_the_same_text(pieces: list[bytes]) -> None:
    whole = b"".join(pieces).decode("utf-8", "replace")
    for stop in ([], ["aba"], ["ß a", "b"]):
        transcript = Transcript(stop)
        for piece in tokens(*pieces):
            transcript.feed([piece])
        transcript.close()
        found = [at for text in stop if (at := whole.find(text)) >= 0]
        assert whole.startswith(transcript.text)
        if not found:
            assert transcript.text == whole
        else:
            assert transcript.stopped
            assert not any(text in transcript.text for text in stop)


def test_half_of_the_stop_strings_first_character_is_not_kept() -> None:
    transcript = Transcript(["€"])
    transcript.feed(tokens(b"a", b"\xe2\x82", b"\xac!"))
    assert transcript.stopped
    assert transcript.tokens_kept == 1
