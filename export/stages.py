"""Finished steps of one export, kept until the folder is whole, so that an export that was
interrupted goes on where it stopped."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from export.home import is_prepared, prepared_folder
from export.progress import Progress


def work_folder(out: Path) -> Path:
    """Where the steps of an export to `out` lie: beside it."""
    return out.with_name(f"{out.name}.work")


class Stages:
    """Steps of one export, each a folder that is there whole or not at all.

    A step is taken over from an earlier run only if its key is the same.

    Args:
        folder: where they lie.
        progress: told what is taken over, and what is left when the export fails.
    """

    def __init__(self, folder: Path, progress: Progress) -> None:
        self.folder = folder
        self._progress = progress

    def finished(self, name: str, key: Mapping[str, str]) -> bool:
        """Whether an earlier run made this step."""
        return is_prepared(self.folder / name, key)

    def make(self, name: str, key: Mapping[str, str], build: Callable[[Path], None]) -> Path:
        """The folder of a step, filled by `build` unless an earlier run did.

        Raises:
            PreparationError: it cannot be written (`OutOfSpace`: the disk is full).
        """
        if self.finished(name, key):
            self._progress.note(f"Taken over from an earlier run: {name} ({self.folder / name})")
        return prepared_folder(self.folder / name, key, build, progress=self._progress)

    def drop(self, name: str) -> None:
        """Delete a step that later ones do not need."""
        shutil.rmtree(self.folder / name, ignore_errors=True)


@contextlib.contextmanager
def stages_of(out: Path, progress: Progress) -> Iterator[Stages]:
    """Steps of the export to `out`; deleted when the block ends without error. After an error
    the finished ones stay, and the person is told where."""
    folder = work_folder(out)
    stages = Stages(folder, progress)
    try:
        yield stages
    except BaseException:
        kept = [path for path in _folders(folder) if ".partial-" not in path.name]
        if kept:
            names = ", ".join(path.name for path in kept)
            progress.note(
                f"Finished steps ({names}) are kept in {folder}; the same export goes on from "
                "there. Delete the folder if you do not want that."
            )
        else:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def link_or_copy(source: Path, target: Path) -> None:
    """The same content under a second name, without a second copy where the disk can do that."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
