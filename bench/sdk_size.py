"""What the SDK weighs: time of its import, and size of what is installed with it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

import edge_sdk

PACKAGE: Final = "edge-cosd"
APART: Final = ("onnxruntime", "numpy")
_IMPORT: Final = (
    "import time; begin = time.perf_counter(); from edge_sdk import EdgeClient; "
    "print(time.perf_counter() - begin)"
)


def import_seconds(*, runs: int = 5) -> float:
    """Shortest seconds of `from edge_sdk import EdgeClient` in a fresh interpreter: what else the
    machine does only adds to them."""
    taken = []
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, "-c", _IMPORT],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(edge_sdk.__file__).parents[1],
        )
        taken.append(float(done.stdout))
    return min(taken)


def base_packages() -> dict[str, int]:
    """Bytes of every package that a plain install brings, by name, onnxruntime and numpy apart;
    what only those two need counts, since it is installed with them."""
    sizes = {PACKAGE: _tree(Path(edge_sdk.__file__).parent)}
    waiting = [PACKAGE]
    seen = {PACKAGE}
    while waiting:
        for text in metadata.requires(waiting.pop()) or ():
            requirement = Requirement(text)
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            marker = requirement.marker
            if name in seen or (marker is not None and not marker.evaluate({"extra": ""})):
                continue
            seen.add(name)
            waiting.append(name)
            if name not in APART:
                sizes[name] = _installed(metadata.distribution(name))
    return sizes


def _installed(package: metadata.Distribution) -> int:
    """Bytes of the files that its wheel put there."""
    files = (Path(str(package.locate_file(file))) for file in package.files or ())
    return sum(file.stat().st_size for file in files if file.is_file() and file.suffix != ".pyc")


def _tree(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.py"))
