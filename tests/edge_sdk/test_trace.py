"""Traces: every rule of the format that viewers hold to, and what a person must see."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harness.serving import PROMPT, Faults, Serving, connected, related_draft, serving

from edge_sdk.adapt import Plan
from edge_sdk.errors import CosdError, InvalidRequest
from edge_sdk.text.round import Round
from edge_sdk.trace import Trace


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as running:
        yield running


def tracks(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Spans by the name of their track, in order of time; refuses what a viewer would not
    show as it is meant: unknown phases, missing fields, spans that overlap in one track."""
    data = json.loads(path.read_text("utf-8"))
    assert set(data) == {"traceEvents", "displayTimeUnit"}
    assert data["displayTimeUnit"] in ("ms", "ns")
    names: dict[int, str] = {}
    spans: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in data["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index")
            if event["name"] == "thread_name":
                assert event["tid"] not in names
                names[event["tid"]] = event["args"]["name"]
            continue
        assert event["ph"] == "X"
        assert event["tid"] in names
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        assert isinstance(event["args"], dict)
        spans[event["tid"]].append(event)
    for track in spans.values():
        track.sort(key=lambda event: (event["ts"], event["dur"]))
        for one, two in pairwise(track):
            assert one["ts"] + one["dur"] <= two["ts"]
    assert len({names[track] for track in spans}) == len(spans)
    return {names[track]: spans[track] for track in spans}


async def traced(server: Serving, path: Path, faults: Faults | None = None, **options: Any) -> str:
    with Trace(path) as trace:
        async with connected(server, related_draft(), faults=faults) as client:
            stream = client.generate(PROMPT, seed=8, on_round=trace.round, **options)
            async for piece in stream:
                trace.piece(piece.text, len(piece.tokens))
        return stream.text


async def test_blocks_that_travel_while_others_are_drafted(server: Serving, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    slow = Faults("/verify", ["slow"] * 500)
    text = await traced(server, path, slow, gamma=2, window=3, max_tokens=40)
    found = tracks(path)
    assert {"text", "draft", "server", "flight 1", "flight 2"} <= set(found)
    assert "".join(event["name"] for event in found["text"][1:]).replace("(held back)", "") == text
    assert sum(event["args"]["tokens"] for event in found["text"][1:]) == 40
    flights = [event for name, events in found.items() if "flight" in name for event in events]
    # While a block travels, another one is drafted.
    assert any(
        flight["ts"] < draft["ts"] < flight["ts"] + flight["dur"]
        for flight in flights
        for draft in found["draft"]
    )
    for event in found["server"]:
        (flight,) = [f for f in flights if f["name"] == event["name"]]
        assert flight["ts"] <= event["ts"]
        assert event["ts"] + event["dur"] <= flight["ts"] + flight["dur"]
    assert sum(event["args"]["accepted"] for event in flights) > 0


async def test_the_server_alone(server: Serving, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    await traced(server, path, method="autoregressive", max_tokens=12)
    found = tracks(path)
    assert set(found) == {"text", "flight 1"}
    assert [event["name"] for event in found["flight 1"]] == ["server alone: 12 tokens"]


def test_what_was_interrupted_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"

    def interrupted() -> None:
        with Trace(path) as trace:
            trace.round(given_up())
            trace.piece('quotes " and \\ and \n and caf\u00e9 ' + "x" * 100, 3)
            assert not path.exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    found = tracks(path)
    assert found["draft"][0]["name"] == "given up"
    assert len(found["text"][-1]["name"]) == 60
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]


def given_up() -> Round:
    plan = Plan(speculate=True, gamma=2, window=2)
    return Round(sequence=None, plan=plan, stale=True, draft_begin=1.0, draft_end=2.0)


def test_files_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="is a folder"):
        Trace(tmp_path)
    with pytest.raises(InvalidRequest, match="cannot be made"):
        Trace(tmp_path / "nowhere" / "trace.json")
    for no_name in ("", "/"):
        with pytest.raises(InvalidRequest, match="is a folder"):
            Trace(Path(no_name))
    for long in (tmp_path / ("a" * 250), tmp_path / ("a" * 300) / "b"):
        with pytest.raises(InvalidRequest, match="too long; name a file"):
            Trace(long)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace.json")
    trace._file.close()
    trace._file = Path("/dev/full").open("w")  # noqa: SIM115
    with pytest.raises(CosdError, match="No space left"):
        trace.close()
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_not_replaced_by_a_trace() -> None:
    with pytest.raises(InvalidRequest, match="no plain file"):
        Trace(Path("/dev/null"))
    assert Path("/dev/null").is_char_device()
