from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_sdk.errors import InvalidRequest
from edge_sdk.vocab.stop import MAX_STOP_CHARACTERS, MAX_STOPS, StopMatch, StopStrings

# Two letters make stop strings overlap each other and themselves.
LETTERS = st.text(alphabet="ab", max_size=6)
STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=4)


def first_match(text: str, stops: list[str]) -> StopMatch | None:
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return StopMatch(stop, end - len(stop))
    return None


@given(st.lists(LETTERS, max_size=6), STOPS)
@settings(max_examples=500)
def test_against_brute_force(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    wanted = first_match(text, stops)
    strings = StopStrings(stops)
    out = ""
    seen = ""
    for piece in pieces:
        out += strings.feed(piece)
        seen += piece
        assert seen.startswith(out)
        if first_match(seen, stops) is None:
            assert strings.match is None
            assert out + strings.held == seen
            # Held exactly as much as could still begin a stop string, no more.
            could_begin = [
                size
                for size in range(len(seen) + 1)
                if any(
                    len(stop) > size and stop.startswith(seen[len(seen) - size :]) for stop in stops
                )
            ]
            assert len(strings.held) == max(could_begin, default=0)
        else:
            assert strings.match == wanted
            assert strings.held == ""
    out += strings.flush()
    assert strings.match == wanted
    assert out == (text if wanted is None else text[: wanted.cut])


def test_a_match_across_pieces() -> None:
    strings = StopStrings(["\n\nUser:", "###"])
    assert strings.feed("Hello\n") == "Hello"
    assert strings.feed("\nUs") == ""
    assert strings.feed("age") == "\n\nUsage"
    assert strings.feed("#") == ""
    assert strings.feed("## more") == ""
    assert strings.match == StopMatch("###", 12)
    assert strings.feed("more") == ""
    assert strings.flush() == ""


def test_the_end_that_comes_first_wins() -> None:
    strings = StopStrings(["abcd", "bc"])
    assert strings.feed("abcd") == "a"
    assert strings.match == StopMatch("bc", 1)


def test_of_two_that_end_together_the_longer_wins() -> None:
    strings = StopStrings(["c", "abc"])
    assert strings.feed("xabc") == "x"
    assert strings.match == StopMatch("abc", 1)


def test_without_stop_strings_nothing_is_held() -> None:
    strings = StopStrings([])
    assert strings.feed("text") == "text"
    assert strings.flush() == ""


@pytest.mark.parametrize(
    ("stops", "why"),
    [
        ([""], "1 to 1024 characters, not ''"),
        (["a", "b" * (MAX_STOP_CHARACTERS + 1)], "1 to 1024 characters"),
        (["a"] * (MAX_STOPS + 1), "65 stop strings are given, the limit is 64"),
        ([7], "1 to 1024 characters, not 7"),
        ("abc", "give a list"),
    ],
)
def test_bad_stop_strings_are_refused(stops: list[str], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        StopStrings(stops)
    assert caught.value.field == "stop"
