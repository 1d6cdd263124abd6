"""The programs of `examples/` and the code of `docs/sdk.md`, run on the toy pair."""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib.util
import inspect
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import certifi
import pytest
from harness.serving import Serving, related_draft, serving

import edge_sdk

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
GUIDE = ROOT / "docs" / "sdk.md"


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving(keys=["secret"]) as running:
        yield running


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COSD_API_KEY", "secret")
    monkeypatch.setenv("COSD_HOME", str(tmp_path))


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(path: Path, *arguments: Any) -> None:
    main = module_of(path).main
    done = main(*arguments)
    if inspect.iscoroutine(done):
        asyncio.run(done)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example(
    path: Path,
    server: Serving,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = iter(["/undo", "hello", "and then", "/undo", "or", ""])
    monkeypatch.setattr(builtins, "input", lambda prompt: next(lines))
    # Own authorities over TLS are in tests/edge_sdk/transport; here the program has to run.
    more = [certifi.where()] if path.stem == "own_tls" else []
    run(path, server.url, related_draft(), *more)
    shown = capsys.readouterr()
    assert len(shown.out.strip()) > 20
    assert shown.err == ""
    expected = {
        "complete": r"tokens/s, acceptance [01]\.",
        "stream": r"tokens by (hybrid|candidates|coupled), finish",
        "chat": r"\(0 of \d+ prompt(.|\n)*\([1-9]\d* of \d+ prompt(.|\n)*\([1-9]\d* of",
        "callbacks": r"of \d+ drafted tokens kept",
    }
    assert re.search(expected.get(path.stem, ""), shown.out), shown.out


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_what_went_wrong(path: Path) -> None:
    def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)

    assert "python examples/" in ended().stderr
    # Nothing listens there.
    more = [certifi.where()] if path.stem == "own_tls" else []
    scheme = "https" if more else "http"
    away = ended(f"{scheme}://127.0.0.1:9", "no-such-draft", *more)
    assert "no connection to" in away.stderr
    assert "Traceback" not in away.stderr


def blocks() -> list[tuple[int, str]]:
    """Line and source of every piece of Python in the guide."""
    text = GUIDE.read_text("utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start()].count("\n") + 1, match[1]) for match in found]


@pytest.mark.parametrize(("line", "source"), blocks(), ids=lambda value: str(value)[:6])
def test_code_of_the_guide(
    line: int, source: str, server: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    code: CodeType = compile(source, f"{GUIDE}:{line}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {
        "SERVER": server.url,
        "KEY": "secret",
        "DRAFT": related_draft(),
        "CONTEXT": ssl.create_default_context(),
        **{name: getattr(edge_sdk, name) for name in edge_sdk.__all__},
    }

    async def main() -> None:
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result

    asyncio.run(main())
    capsys.readouterr()


def test_the_guide_has_code() -> None:
    assert len(blocks()) > 6
