"""The command line on the versions that a phone has builds of."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import ToyServer

pytest.importorskip("flet", reason="these versions are those of `make test-android`")

ROOT = Path(__file__).parents[3]
KEY = "key-of-the-phone"


def run(app: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cosd_app.cli", "--data", str(app), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "android_demo/src"), "COSD_API_KEY": KEY},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_these_are_the_phone_s_versions() -> None:
    compiled = ("msgpack", "numpy", "onnxruntime", "PyYAML", "tokenizers")
    pins = (ROOT / "constraints" / "phone.txt").read_text("utf-8").splitlines()
    for name in compiled:
        assert f"{name}=={version(name)}" in pins


def test_from_nothing_to_a_text(tmp_path: Path, running: ToyServer) -> None:
    for arguments in (["server", running.url], ["download", "tiny"]):
        done = run(tmp_path, *arguments)
        assert done.returncode == 0, done.stderr
    given = ["generate", "a toy", "--method", "coupled", "--seed", "4", "--max-tokens", "40"]
    done = run(tmp_path, *given)
    assert done.returncode == 0, done.stderr
    assert "40 tokens" in done.stderr
    assert len(done.stdout.strip()) > 20
    alone = run(tmp_path, *given[:3], "autoregressive", *given[4:])
    assert alone.stdout == done.stdout
