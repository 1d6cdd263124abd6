"""The command line, as Termux runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness.serving import Serving

ROOT = Path(__file__).parents[2]
KEY = "key-of-the-phone"


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "cosd_app.cli", "--data", str(folder), *arguments]


def environment(**changes: str) -> dict[str, str]:
    paths = f"{ROOT / 'android_demo' / 'src'}{os.pathsep}{ROOT}"
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **changes}


def run(folder: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *arguments),
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_from_nothing_to_a_text(tmp_path: Path, server: Serving) -> None:
    app = tmp_path / "app"
    before = run(app, "generate", "hello")
    assert before.returncode == 1
    assert "no server is set" in before.stderr

    wrong = run(app, "server", server.url, COSD_API_KEY="wrong")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("The server does not accept this key.")
    assert "Traceback" not in wrong.stderr

    right = run(app, "server", server.url, COSD_API_KEY=KEY)
    assert right.returncode == 0, right.stderr
    assert right.stdout.startswith("tiny  tiny  0.")
    assert run(app, "download", "tiny").returncode == 0
    assert "on this device" in run(app, "drafts").stdout

    given = ["generate", "a toy of the sea", "--method", "coupled", "--seed", "7"]
    plain = run(app, *given, "--max-tokens", "40")
    assert plain.returncode == 0, plain.stderr
    assert "40 tokens" in plain.stderr
    assert "seed 7" in plain.stderr
    shown = run(app, *given, "--style", "marks")
    assert "[" in shown.stdout
    again = run(app, *given, "--style", "color")
    assert "\x1b[32m" in again.stdout
    without = re.sub(r"\x1b\[[0-9;]*m", "", again.stdout)
    assert without == run(app, *given, "--style", "plain").stdout == plain.stdout
    everything = plain.stdout + plain.stderr + right.stdout + right.stderr
    assert KEY not in everything


def test_ctrl_c_stops(tmp_path: Path, server: Serving) -> None:
    app = tmp_path / "app"
    assert run(app, "server", server.url, COSD_API_KEY=KEY).returncode == 0
    assert run(app, "download", "tiny").returncode == 0
    process = subprocess.Popen(
        command(app, "generate", "a toy", "--max-tokens", "3000"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.read(10)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=20)
    assert time.monotonic() - begin < 10
    assert process.returncode == 130
    assert "Traceback" not in errors


@pytest.mark.parametrize("arguments", [["--help"], ["generate", "--help"], ["server", "--help"]])
def test_help(tmp_path: Path, arguments: list[str]) -> None:
    assert run(tmp_path, *arguments).returncode == 0


def test_the_app_imports_no_flet() -> None:
    """The phone's Python has Flet; Termux and tests have not."""
    for path in (ROOT / "android_demo" / "src" / "cosd_app").glob("*.py"):
        assert "flet" not in path.read_text("utf-8").replace("FLET_APP_STORAGE_DATA", "").replace(
            "what Flet names", ""
        ), path
