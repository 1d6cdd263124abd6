"""From tokens to the text that leaves."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_sdk.text.tokens import Origin, Token
from edge_sdk.text.transcript import Piece, Transcript


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


def test_what_was_shown_too_early_is_taken_back() -> None:
    transcript = Transcript()
    assert transcript.feed(tokens(b"ab")) == Piece("ab", tokens(b"ab"))
    ahead = transcript.feed([], tokens(b"c", b"de"))
    assert (ahead.text, ahead.retracted, ahead.verified) == ("cde", 0, False)
    assert (transcript.text, transcript.unverified, transcript.tokens) == (
        "ab",
        "cde",
        tokens(b"ab"),
    )
    same = transcript.feed(tokens(b"c"), tokens(b"de"))
    assert (same.text, same.retracted, same.verified) == ("", 0, True)
    other = transcript.feed(tokens(b"dx"))
    assert (other.text, other.retracted, other.verified) == ("x", 1, True)
    assert (transcript.text, transcript.unverified) == ("abcdx", "")


def test_unverified_tokens_are_cut_like_others() -> None:
    transcript = Transcript(["end"])
    transcript.feed(tokens(b"a\xc3"))
    assert transcript.feed([], tokens(b"\xbc", b"e")).text == "ü"
    assert transcript.feed([], tokens(b"\xbc", b"en", b"d of")).text == ""
    assert transcript.feed(tokens(b"\xbcen"), tokens(b"x")).text == "enx"
    piece = transcript.feed(tokens(b"d"), tokens(b"x"))
    assert (piece.text, piece.retracted) == ("", 3)
    assert transcript.stopped
    assert transcript.text == "aü"
    assert transcript.close() == Piece("", [])


def test_closing_takes_back_what_is_not_verified() -> None:
    transcript = Transcript()
    transcript.feed(tokens(b"a"), tokens(b"bcd"))
    assert transcript.close() == Piece("", [], retracted=3)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([b"a", b"ab", "ß".encode(), b"\xc3", b"\x9f", b""])),
            st.lists(st.sampled_from([b"a", b"ab", "ß".encode(), b"\xc3", b"\x9f", b""])),
        )
    )
)
def test_applying_the_pieces_gives_what_is_shown(
    steps: list[tuple[list[bytes], list[bytes]]],
) -> None:
    plain, transcript = Transcript(["aba"]), Transcript(["aba"])
    shown = ""
    for certain, ahead in steps:
        piece = transcript.feed(tokens(*certain), tokens(*ahead))
        assert piece.retracted <= len(shown)
        shown = shown[: len(shown) - piece.retracted] + piece.text
        assert shown == transcript.text + transcript.unverified
        plain.feed(tokens(*certain))
        assert transcript.text == plain.text
    piece = transcript.close()
    shown = shown[: len(shown) - piece.retracted] + piece.text
    plain.close()
    assert shown == transcript.text == plain.text
