"""The folder where prepared models live, and how a folder appears there: whole or not at all."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from edge_sdk.errors import ModelFolderInvalid, OutOfSpace, PreparationError
from edge_sdk.home import cosd_home
from export.progress import NoProgress, Progress

HOME_VARIABLE = "COSD_HOME"
MARKER_NAME = "prepared.json"
_FULL = (errno.ENOSPC, errno.EDQUOT)


def model_home() -> Path:
    """The one home of everything prepared (`edge_sdk.home.cosd_home`), as an absolute path."""
    return cosd_home().absolute()


@contextmanager
def new_folder(final: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder to fill that becomes `final` by renaming, when the block ends without error.

    It is `final.partial-<pid>` until then. Whatever ends the block early (an error, Ctrl-C)
    deletes it; what a killed process left is deleted by `locked`.

    Args:
        final: where the folder is to appear.
        replace: an existing `final` gives way, once the new folder is whole.

    Raises:
        PreparationError: the folder cannot be made there.
        OutOfSpace: the disk is full.
    """
    work = final.with_name(f"{final.name}.partial-{os.getpid()}")
    with disk_errors(final):
        _make(final.parent, exist_ok=True, meant=final)
        _make(work, meant=final)
        try:
            yield work
            if replace and final.exists():
                old = final.with_name(f"{final.name}.partial-old-{os.getpid()}")
                final.rename(old)
                work.rename(final)
                shutil.rmtree(old, ignore_errors=True)
            else:
                work.rename(final)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def check_makeable(final: Path) -> None:
    """Before any work: can `final` be made there? Leaves nothing behind.

    Raises:
        PreparationError: it cannot.
        OutOfSpace: the disk is full.
    """
    place = final.parent
    while not place.exists() and place != place.parent:
        place = place.parent
    tried = place / f"{final.name}.try-{os.getpid()}"
    with disk_errors(final):
        _make(tried, meant=final)
        tried.rmdir()


@contextmanager
def locked(final: Path, *, progress: Progress | None = None) -> Iterator[None]:
    """Hold the right to make `final`: one process at a time, and nothing half-made around.

    The lock lies in the model home and goes with the process that holds it, so a folder
    `final.partial-*` that is there when the lock is won belongs to nobody alive.

    Raises:
        PreparationError: the model home cannot be written.
    """
    progress = progress or NoProgress()
    digest = hashlib.sha256(str(final.absolute()).encode()).hexdigest()[:24]
    folder = model_home() / "locks"
    with disk_errors(folder):
        _make(folder, exist_ok=True)
        lock = FileLock(folder / f"{digest}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            with progress.stage(f"wait for another process that prepares {final.name}"):
                lock.acquire()
    try:
        for leftover in final.parent.glob(f"{glob.escape(final.name)}.partial-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield
    finally:
        lock.release()


def prepared_folder(
    final: Path, key: Mapping[str, str], build: Callable[[Path], None], *, progress: Progress
) -> Path:
    """`final`, built unless it is there, whole and made with the same `key`.

    Args:
        final: folder in the model home.
        key: what the content depends on, e.g. digest of the source and version of the code.
        build: fills the empty folder that it is given.
        progress: told of each stage.

    Raises:
        PreparationError: the folder could not be made (`OutOfSpace`: the disk is full).
    """
    if is_prepared(final, key):
        return final
    with locked(final, progress=progress):
        if not is_prepared(final, key):
            with new_folder(final, replace=True) as work:
                build(work)
                _write_marker(work, key)
    return final


def require_space(
    folder: Path,
    needed: int,
    what: str,
    *,
    instead: str = f"set {HOME_VARIABLE} to a folder on another disk",
) -> None:
    """Check that `needed` bytes are free where `folder` is, or is to be.

    Args:
        folder: where `what` is going to be written.
        needed: bytes.
        what: the work, for the message.
        instead: what else a person can do.

    Raises:
        OutOfSpace: fewer are free.
    """
    place = folder
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed:
        raise OutOfSpace(
            f"{what} needs {needed / 1e6:,.0f} MB in {folder}, only {free / 1e6:,.0f} MB are free; "
            f"free some space or {instead}"
        )


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn a full or read-only disk into an error that says so.

    Raises:
        OutOfSpace: no space is left.
        PreparationError: the folder cannot be written.
    """
    try:
        yield
    except Exception as error:
        if _is_full(error):
            raise OutOfSpace(
                f"the disk of {folder} is full; free some space or "
                f"{_another(folder, ' on another disk')}"
            ) from error
        if isinstance(error, PermissionError | FileExistsError | NotADirectoryError):
            raise PreparationError(
                f"{error.filename or folder} cannot be written ({error.strerror}); "
                f"{_another(folder)}"
            ) from error
        raise


def _another(folder: Path, where: str = "") -> str:
    """What to do where `folder` cannot be: it is in the model home, or somebody named it."""
    if folder.is_relative_to(model_home()):
        return f"set {HOME_VARIABLE} to another folder{where}"
    return f"choose another folder{where}"


def _make(folder: Path, *, exist_ok: bool = False, meant: Path | None = None) -> None:
    """Make `folder`, which an error calls by the name of the one that is `meant`."""
    meant = meant or folder
    try:
        folder.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        if _is_full(error):
            raise
        raise PreparationError(
            f"the folder {meant} cannot be made ({error.strerror}); {_another(meant)}"
        ) from error


def _is_full(error: BaseException | None) -> bool:
    # safetensors and torch report a full disk as errors of their own, with the text of the system.
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if "No space left on device" in str(error) and not isinstance(error, PreparationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _write_marker(folder: Path, key: Mapping[str, str]) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    document = {"key": dict(key), "files": sizes}
    (folder / MARKER_NAME).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def is_prepared(folder: Path, key: Mapping[str, str]) -> bool:
    """Whether `folder` is there, whole and made with this key."""
    try:
        document = json.loads((folder / MARKER_NAME).read_text(encoding="utf-8"))
        return document["key"] == dict(key) and all(
            (folder / name).stat().st_size == size for name, size in document["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def check_prepared(folder: Path) -> None:
    """Check that no file of a prepared folder is missing or of another size.

    Raises:
        ModelFolderInvalid: one is; the next preparation makes the folder again.
    """
    try:
        key = json.loads((folder / MARKER_NAME).read_text(encoding="utf-8"))["key"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFolderInvalid(
            f"{folder} has no readable {MARKER_NAME}; prepare it again"
        ) from error
    if not is_prepared(folder, key):
        raise ModelFolderInvalid(f"files of {folder} are missing or truncated; prepare it again")
