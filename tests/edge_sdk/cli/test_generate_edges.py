"""`cosd generate` where its environment is odd: every end is one line."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SERVER = """
import sys
from edge_sdk.cli import generate as module
from edge_sdk.errors import SessionLost
from edge_sdk.stats import Stats

class Stream:
    stats = Stats(method="hybrid", tokens=1, seconds=1.0)
    finish = None
    seed = 7
    async def __aenter__(self): return self
    async def __aexit__(self, *error): return None
    async def __aiter__(self):
        yield type("Piece", (), {"text": "caf\u00e9"})
        if "breaks" in sys.argv: raise SessionLost("the server went")

class Client:
    def __init__(self, server, *, draft, api_key, **options): print("key", api_key, file=sys.stderr)
    async def __aenter__(self): return self
    async def __aexit__(self, *error): return None
    def generate(self, *arguments, **options): return Stream()

module.EdgeClient = Client
"""
RUN = "from edge_sdk.cli.main import main; raise SystemExit(main())"


def generate(arguments: str, *, code: str = RUN, **environment: str) -> tuple[int, list[str]]:
    """Status and stderr lines of `cosd generate` with redirections, by a shell."""
    program = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    done = subprocess.run(
        ["sh", "-c", f"{program} generate {arguments}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


def text(arguments: str, **environment: str) -> tuple[int, list[str]]:
    return generate(
        f"hi --method autoregressive --no-stats {arguments}", code=SERVER + RUN, **environment
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk() -> None:
    status, errors = text("> /dev/full")
    assert status == 1
    assert errors[1:] == ["error: stdout cannot be written: No space left on device (error)"]


def test_a_reader_that_is_gone() -> None:
    away = "import os; end, start = os.pipe(); os.close(end); os.dup2(start, 1); "
    status, errors = generate("hi --method autoregressive", code=away + SERVER + RUN)
    assert (status, errors[1:]) == (1, [])


def test_what_a_text_that_broke_off_cost() -> None:
    plain = "--method autoregressive"
    status, errors = generate(f"breaks {plain} > /dev/null", code=SERVER + RUN)
    assert status == 1
    assert any("target calls a token" in line for line in errors)
    assert errors[-2].startswith("finish: broke off, seed: 7 (repeats a text only with a number")
    assert errors[-1] == "error: the server went (session_lost)"
    fixed = generate(f"hi {plain} --gamma 3 > /dev/null", code=SERVER + RUN)[1]
    assert fixed[-1].endswith("seed: 7")
    without = generate(f"breaks {plain} --no-stats > /dev/null", code=SERVER + RUN)[1]
    assert without[1:] == [errors[-1]]


def test_an_encoding_without_the_letters() -> None:
    status, errors = text("> /dev/null", PYTHONIOENCODING="ascii")
    assert status == 1
    assert "PYTHONIOENCODING" in errors[1]
    assert text("> /dev/null")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "say"),
    [
        ("hi >&-", "stdout is closed"),
        ("<&-", "stdin is closed"),
        ("hi --draft ''", "--draft is empty"),
        ("hi", "--draft is missing"),
        ("hi --method auto", "--draft is missing"),
        ("hi --method auto --option k=3", "not with --method auto"),
        ("hi --draft smollm2-135m", "`cosd prepare NAME --draft`"),
        ("hi --offline draft", "--offline is 'draft'"),
        ("hi --draft /etc/passwd", "/etc/passwd is a file, not a folder"),
    ],
)
def test_one_line(arguments: str, say: str) -> None:
    status, errors = generate(arguments)
    assert status == 1
    (line,) = errors
    assert line.startswith("error: ")
    assert say in line


def test_the_key() -> None:
    assert text("", COSD_API_KEY="")[1] == ["key None"]
    assert text("", COSD_API_KEY="abc")[1] == ["key abc"]
    status, errors = generate("hi --method autoregressive", COSD_API_KEY="\u00e9")
    assert status == 1
    (line,) = errors
    assert "COSD_API_KEY is no usable key" in line


def test_a_trace_of_a_text_that_never_began(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    status, errors = generate(
        f"hi --server http://127.0.0.1:1 --method autoregressive --trace {trace}"
    )
    assert status == 1
    assert "no connection" in errors[-1]
    assert json.loads(trace.read_text())["traceEvents"]
    status, errors = generate(f"hi --method autoregressive --trace {tmp_path}")
    assert status == 1
    assert "is a folder" in errors[-1]
    status, errors = generate("hi --gamma many")
    assert status == 1
    assert "--gamma is 'many'" in errors[-1]
