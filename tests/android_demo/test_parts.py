"""Small parts: marks, words, what is stored, figures, memory."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from cosd_app.keys import FileKeyStore
from cosd_app.live import POINTS, LiveFigures
from cosd_app.marks import MARKS, Spans, marked, spoken
from cosd_app.memory import low_memory
from cosd_app.server import checked_address
from cosd_app.state import Choices, Span, State
from cosd_app.storage import Storage
from cosd_app.words import problem_of
from edge_sdk import errors
from edge_sdk.errors import CosdError, InvalidRequest, PreparationError, RateLimited
from edge_sdk.stats import Stats
from edge_sdk.text.tokens import Origin, Token


def test_spans_have_the_characters_of_the_text() -> None:
    data = "añ€𝄞 ende".encode() + b"\xff\xe2\x82"
    origins = list(Origin)
    tokens = [Token(0, bytes([b]), origins[i % 3]) for i, b in enumerate(data)]
    spans = Spans()
    for token in tokens:
        spans.feed([token])
    spans.close()
    assert "".join(span.text for span in spans()) == data.decode("utf-8", "replace")
    assert all(a.origin != b.origin for a, b in zip(spans(), spans()[1:], strict=False))


def test_origins_differ_without_colour() -> None:
    assert set(MARKS) == set(Origin)
    for values in (
        [mark.name for mark in MARKS.values()],
        [(mark.before, mark.after) for mark in MARKS.values()],
        [mark.meaning for mark in MARKS.values()],
    ):
        assert len(set(values)) == len(values)
    spans = (Span("The ", Origin.ACCEPTED), Span("sea", Origin.SETTLED), Span(".", Origin.SERVER))
    assert marked(spans) == "The [sea]{.}"
    assert spoken(spans) == "50 percent drafted here, 38 percent settled, 12 percent server"
    assert spoken(()) == "no text yet"


def _all_errors() -> list[type[CosdError]]:
    return [getattr(errors, name) for name in errors.__all__ if name[0].isupper()]


@pytest.mark.parametrize("cls", _all_errors())
def test_every_error_has_plain_words(cls: type[CosdError]) -> None:
    problem = problem_of(cls("exactly this"))
    assert problem.title
    assert problem.advice
    assert problem.detail == "exactly this"
    for jargon in ("session", "HTTP", "manifest", "vocabulary", "SHA", "exception"):
        assert jargon not in problem.title + problem.advice


def test_words_of_other_errors() -> None:
    assert problem_of(RateLimited("x", retry_after=12)).advice == "Try again in about 12 seconds."
    assert "ValueError: y" in problem_of(ValueError("y")).detail


async def test_the_key_file(tmp_path: Path) -> None:
    keys = FileKeyStore(tmp_path / "in" / "key")
    assert await keys.load() is None
    await keys.clear()
    await keys.save("one")
    await keys.save("two")
    path = tmp_path / "in" / "key"
    assert await keys.load() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["key"]
    with pytest.raises(InvalidRequest):
        await keys.save("two\nlines")
    assert await keys.load() == "two"
    await keys.clear()
    assert await keys.load() is None
    path.mkdir()
    with pytest.raises(PreparationError, match="cannot be read"):
        await keys.load()
    with pytest.raises(PreparationError, match="cannot be kept"):
        await keys.save("three")
    assert [p.name for p in path.parent.iterdir()] == ["key"]


@pytest.mark.parametrize(
    "document",
    [
        "no json",
        "[]",
        '{"temperature": "hot"}',
        '{"temperature": NaN}',
        '{"max_tokens": -5}',
        '{"max_tokens": true}',
        '{"theme": "pink"}',
        '{"draft": "../../etc"}',
        '{"server": 7, "unknown": 1}',
        '{"method": "magic"}',
    ],
)
def test_choices_that_cannot_be_are_left_out(tmp_path: Path, document: str) -> None:
    (tmp_path / "choices.json").write_text(document)
    assert Storage(tmp_path).load_choices() == Choices()


def test_choices_stay(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "app")
    choices = Choices(server="http://x", temperature=1.0, chat=True, theme="dark")
    storage.save_choices(choices)
    assert storage.load_choices() == choices
    (tmp_path / "app" / "choices.json").write_text('{"temperature": 1}')
    assert storage.load_choices().temperature == 1.0


def test_a_text_under_way_stays(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    assert storage.load_text() is None
    spans = (Span("ä", Origin.ACCEPTED), Span("b", Origin.SETTLED))
    storage.save_text("prompt", spans)
    assert storage.load_text() == ("prompt", spans)
    storage.forget_text()
    storage.forget_text()
    assert storage.load_text() is None
    for wrong in ({"spans": 3}, {"spans": [["a", "magic"]], "prompt": ""}, {"spans": []}, []):
        (tmp_path / "text.json").write_text(json.dumps(wrong))
        assert storage.load_text() is None


def test_live_figures() -> None:
    now = 100.0
    figures = LiveFigures(lambda: now)
    stats = Stats()
    first = figures(stats)
    assert (first.acceptance, first.round_trip, first.rates) == (None, None, ())
    for _ in range(POINTS + 5):
        now += 0.5
        stats.tokens += 4
        stats.rounds += 1
        stats.round_seconds += 0.1
        stats.examined += 4
        stats.accepted += 3
        last = figures(stats)
    assert last.rates == (8.0,) * POINTS
    assert last.tokens_per_second == pytest.approx(8.0)
    assert last.acceptance == 0.75
    assert last.round_trip == pytest.approx(0.1)
    now += 0.1
    stats.tokens += 2
    assert figures(stats, over=True).rates[-1] == pytest.approx(20.0)


def test_low_memory(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    assert not low_memory(path)
    for total, free, low in ((4_000_000, 100_000, True), (4_000_000, 900_000, False)):
        path.write_text(f"MemTotal: {total} kB\nMemFree: 1 kB\nMemAvailable: {free} kB\n")
        assert low_memory(path) is low
    path.write_text("MemTotal: 16000000 kB\nMemAvailable: 700000 kB\n")
    assert low_memory(path)  # 5 percent of a large device
    path.write_text("nonsense\nMemTotal:\n")
    assert not low_memory(path)


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("https://a.b:1", "https://a.b:1"),
        (" a.b:8077/ ", "https://a.b:8077"),
        ("127.0.0.1:8077", "http://127.0.0.1:8077"),
        ("localhost", "http://localhost"),
        ("10.0.2.2:8077", "https://10.0.2.2:8077"),
    ],
)
def test_addresses_as_they_are_typed(typed: str, address: str) -> None:
    assert checked_address(typed) == address


@pytest.mark.parametrize(
    ("server", "has_key", "exposed"),
    [
        ("http://example.com", True, True),
        ("http://192.168.1.5:8077", True, True),
        ("https://example.com", True, False),
        ("http://127.0.0.1:8077", True, False),
        ("http://example.com", False, False),
    ],
)
def test_a_key_that_others_may_read(server: str, has_key: bool, exposed: bool) -> None:
    assert State(choices=Choices(server=server), has_key=has_key).exposed is exposed
