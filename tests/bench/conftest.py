from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOYS = ("--target", "toy:1", "--draft", "toy:2")


@pytest.fixture
def program() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `python -m MODULE ...` to its end."""

    def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    return run
