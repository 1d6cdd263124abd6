from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from edge_sdk.errors import (
    ConnectionFailed,
    CosdError,
    InvalidRequest,
    ModelFolderInvalid,
    PreparationError,
)
from export import command
from export.console import TerminalProgress


@pytest.fixture
def run() -> Any:
    app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)
    app.command()(command.export)

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(app, list(arguments))

    return invoke


def test_help_explains_sources_and_options(run: Any) -> None:
    result = run("--help")
    assert result.exit_code == 0
    options = ("--bits", "--context", "--force", "--target", "--html")
    for word in ("smollm2-135m", "gemma3-270m", "GGUF", *options):
        assert word in result.output


def test_errors_are_left_to_the_frame(run: Any, tmp_path: Path) -> None:
    result = run("/no/where", str(tmp_path / "x"), "--bits", "3")
    assert isinstance(result.exception, InvalidRequest)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("out", "target", "error"),
    [
        ("file/x", None, PreparationError),
        ("out", "http://127.0.0.1:9", ConnectionFailed),
        ("out", "/no/where", ModelFolderInvalid),
    ],
)
def test_a_place_and_a_target_are_tried_before_the_source_is_read(
    run: Any,
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    out: str,
    target: str | None,
    error: type[CosdError],
) -> None:
    (tmp_path / "file").write_text("")
    read = "export.sources.read_checkpoint"
    monkeypatch.setattr(read, lambda *_, **__: pytest.fail("it was read"))
    named = [] if target is None else ["--target", target]
    done = run(str(tmp_path), str(tmp_path / out), *named)
    assert isinstance(done.exception, error)
    assert [path.name for path in tmp_path.iterdir() if path != home] == ["file"]


@pytest.mark.parametrize("place", ["no/where.html", "."])
def test_a_page_that_cannot_be_written_is_refused_before_the_export(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(command, "export_draft", lambda *_, **__: pytest.fail("it was begun"))
    done = run("a", str(tmp_path / "out"), "--html", str(tmp_path / place))
    assert isinstance(done.exception, PreparationError)
    assert "for the page" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_arguments_reach_the_export(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def record(source: str, out: Path, **options: Any) -> Any:
        seen.update(source=source, out=out, **options)
        raise InvalidRequest("seen")

    monkeypatch.setattr(command, "export_draft", record)
    monkeypatch.setenv("COSD_API_KEY", "secret")
    options = ["--bits", "8", "--context", "64", "--backend", "optimum", "--force"]
    run("a", "b", *options, "--target", "http://x", "--prune", "--trust-remote-code")
    assert seen.pop("progress") is not None
    assert seen == {
        "source": "a",
        "out": Path("b"),
        "bits": 8,
        "context": 64,
        "backend": "optimum",
        "target": "http://x",
        "prune": True,
        "api_key": "secret",
        "trust_remote_code": True,
        "force": True,
    }


def drawn(width: int = 100) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, force_terminal=True, width=width), stream


def test_bars_show_stages_amounts_and_notes() -> None:
    console, stream = drawn()
    with TerminalProgress(console) as progress:
        with progress.stage("download a wheel", 4 << 20) as stage:
            stage.advance(1 << 20)
        with progress.stage("read [the] header"):
            pass
        with progress.stage("quantise", 7) as stage:
            stage.advance(7)
        progress.note("Terms lie in /x")
    text = stream.getvalue()
    for expected in ("download a wheel", "4/4 MB", "read [the] header", "7/7", "Terms lie in /x"):
        assert expected in text


def test_without_a_terminal_there_are_plain_lines() -> None:
    stream = io.StringIO()
    with TerminalProgress(Console(file=stream)) as progress:
        with progress.stage("download a wheel", 4 << 20) as stage:
            stage.advance(1)
        progress.note("Terms")
    assert stream.getvalue() == "download a wheel ...\nTerms\n"
