"""Whole checks: alone, with a target here, with a server; on the terminal, as JSON, as a page."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from harness.serving import serving
from rich.console import Console
from typer.testing import CliRunner

from edge_sdk.errors import (
    ConnectionFailed,
    CosdError,
    InvalidRequest,
    ModelFolderInvalid,
    PreparationError,
    Unauthorized,
)
from export.check import check_draft
from export.check.command import check
from export.check.page import render, write_page
from export.check.report import Report
from export.check.run import CheckOptions
from export.check.terminal import show

HOSTILE = "<script>alert(1)</script> costs $5 and $6, 海は"
PROMPTS = ("the sea", HOSTILE)
QUICK: dict[str, Any] = {"threads": (1,), "tokens": 6, "prompts": PROMPTS}


@pytest.fixture(scope="module")
def report(drafts: dict[int, Path], source: Path) -> Report:
    """With the source as the target."""
    return check_draft(drafts[32], CheckOptions(target=str(source), **QUICK))


def test_a_draft_with_a_target_here(report: Report, source: Path) -> None:
    assert report.folder.source == str(source)
    assert report.parity is not None
    assert report.parity.top1 == 1.0
    (speed,) = report.speeds
    assert speed.threads == 1
    assert 0 < speed.decode_ms < 1000
    # Loading gives back pages of the program that it no longer needs.
    assert min(speed.resident_mb, speed.program_mb) > 10
    assert speed.prefill_tokens == 127, "the context is shorter than 512"
    assert report.common is not None
    assert report.common.share_of_draft == 1.0
    assert report.acceptance is not None
    assert report.acceptance.by_method["hybrid"] > 0.8
    assert report.recommendation is not None
    assert len(report.recommendation.choices) == 5
    assert report.notes == ()


def test_figures_of_the_device_count(drafts: dict[int, Path], source: Path) -> None:
    found = check_draft(
        drafts[32],
        CheckOptions(
            target=str(source), draft_ms=8.0, target_ms=100.0, rtts_ms=(0.0, 30.0), **QUICK
        ),
    )
    assert found.recommendation is not None
    assert (found.recommendation.draft_ms, found.recommendation.target_ms) == (8.0, 100.0)
    best = found.recommendation.choices[1]
    assert best.gamma > 6, "nearly everything is accepted"
    assert best.speedup > 3


def test_a_draft_with_a_server(drafts: dict[int, Path], home: Path) -> None:
    options = CheckOptions(**QUICK)
    with serving(keys=["secret"]) as server:
        found = check_draft(
            drafts[4],
            CheckOptions(target=server.url, api_key="secret", **QUICK),
        )
        with pytest.raises(Unauthorized):
            check_draft(drafts[4], CheckOptions(target=server.url, **QUICK))
    assert options.target is None
    assert found.common is not None
    assert found.common.target == "toy"
    assert 256 <= found.common.text_tokens < 280
    assert found.acceptance is not None
    assert found.acceptance.how == "served"
    assert set(found.acceptance.by_method) == {"hybrid", "coupled"}
    assert 0 <= found.acceptance.by_method["hybrid"] < 0.9
    assert found.acceptance.positions > 0
    assert found.recommendation is not None
    assert found.recommendation.target_ms > 0
    assert any("round trip took" in note for note in found.notes)


def test_without_its_source(drafts: dict[int, Path], tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    shutil.copytree(drafts[32], folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["source"] = "owner/gone"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    found = check_draft(folder, CheckOptions(threads=(1,)))
    assert (found.parity, found.common, found.recommendation) == (None, None, None)
    assert any("owner/gone is not on this machine" in note for note in found.notes)
    assert "svg" in render(found)


def test_a_source_that_was_changed(drafts: dict[int, Path], source: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    other = tmp_path / "other"
    shutil.copytree(source, other)
    model = AutoModelForCausalLM.from_pretrained(source)
    model.model.norm.weight.data *= 1.5
    model.save_pretrained(other)
    found = check_draft(drafts[32], CheckOptions(source=str(other), threads=(1,)))
    assert any("does not have the digest" in note for note in found.notes)
    assert found.parity is not None
    assert found.parity.kl > 1e-4


def test_a_page_that_needs_nothing_beside_it(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_page(report, path)
    page = path.read_text(encoding="utf-8")
    assert page.count("<svg") == 4
    assert "<script" not in page
    assert "&lt;script&gt;alert" in page
    assert not re.search(r"""(src|href)=["'](?!#)""", page)
    assert "url(http" not in page
    assert "@import" not in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(set(ids)) == len(ids) > 40
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) <= set(ids)
    for word in ("LlamaForCausalLM", "speedup(gamma)", "Recommendation", "KL(source law"):
        assert word in page
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_a_page_that_cannot_be_written(report: Report, tmp_path: Path) -> None:
    with pytest.raises(CosdError, match="choose another place"):
        write_page(report, tmp_path / "no" / "where.html")


@pytest.mark.parametrize("place", ["no/where.html", "."])
def test_a_page_that_cannot_be_written_is_refused_before_the_check(
    run: Any, drafts: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    begun = "export.check.command.check_draft"
    monkeypatch.setattr(begun, lambda *_, **__: pytest.fail("it was begun"))
    done = run(str(drafts[4]), "--html", str(tmp_path / place))
    assert isinstance(done.exception, PreparationError)
    assert "for the page" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_tables(report: Report) -> None:
    console = Console(record=True, width=100)
    show(report, console)
    text = console.export_text()
    for word in ("same likeliest token", "100.0%", "decode ms", "hybrid", "gamma", "round trip"):
        assert word in text


@pytest.fixture
def run() -> Any:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(check)

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(app, list(arguments))

    return invoke


def test_json_and_a_page(run: Any, drafts: dict[int, Path], tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    done = run(str(drafts[4]), "--json", "--threads", "1", "--html", str(page))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["folder"]["bits"] == 4
    assert 0 < found["parity"]["kl"] < 0.5
    assert found["recommendation"] is None
    assert page.is_file()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--target", "http://127.0.0.1:9"], ConnectionFailed, "127.0.0.1:9"),
        (["--target", "/no/where"], ModelFolderInvalid, "/no/where"),
        (["--source", "/no/where"], ModelFolderInvalid, "/no/where"),
        (["--temperature", "0"], InvalidRequest, "temperature"),
        (["--threads", "0"], InvalidRequest, "threads"),
        (["--rtt-ms", "-1"], InvalidRequest, "round trip"),
        (["--prompts", "/no/where"], InvalidRequest, "--prompts /no/where"),
        (["--text", "/no/where"], InvalidRequest, "--text /no/where"),
        (["--target-dtype", "int3"], InvalidRequest, "int3"),
    ],
)
def test_wrong_arguments(
    run: Any,
    drafts: dict[int, Path],
    home: Path,
    arguments: list[str],
    error: type[CosdError],
    message: str,
) -> None:
    done = run(str(drafts[4]), *arguments)
    assert isinstance(done.exception, error)
    assert message in str(done.exception)


@pytest.mark.parametrize(
    ("target", "error"),
    [("http://127.0.0.1:9", ConnectionFailed), ("/no/where", ModelFolderInvalid)],
)
def test_a_target_is_looked_at_before_the_work(
    drafts: dict[int, Path],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    error: type[CosdError],
) -> None:
    read = "export.sources.read_checkpoint"
    monkeypatch.setattr(read, lambda *_, **__: pytest.fail("the source was read"))
    with pytest.raises(error):
        check_draft(drafts[4], CheckOptions(target=target))


def test_a_folder_that_is_no_draft(run: Any, tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert isinstance(done.exception, ModelFolderInvalid)
