"""Progress as bars in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from export.progress import Stage

_BYTES_FROM = 1 << 20  # no stage counts this many of anything but bytes


class TerminalProgress:
    """A bar for each stage, a line for each note; on a terminal that is none, plain lines.

    Args:
        console: where to draw; default: the error stream, so that output stays clean.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bars = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            _Amount(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        if not self._console.is_terminal:
            self._console.print(f"{name} ...", markup=False, highlight=False)
        task = self._bars.add_task(name, total=total)
        yield _Bar(self._bars, task)
        # A stage that went well is full, whatever it counted on the way.
        done = max(total or 1, 1)
        self._bars.update(task, total=done, completed=done)
        self._bars.stop_task(task)

    def note(self, text: str) -> None:
        self._bars.console.print(text, style="yellow", markup=False, highlight=False)


class _Bar:
    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def advance(self, amount: int = 1) -> None:
        self._bars.advance(self._task, amount)


class _Amount(ProgressColumn):
    """Bytes as megabytes, everything else as a count."""

    def render(self, task: Task) -> Text:
        if task.total is None or task.total <= 1:
            return Text("")
        if task.total >= _BYTES_FROM:
            return Text(f"{task.completed / 1e6:,.0f}/{task.total / 1e6:,.0f} MB")
        return Text(f"{task.completed:,.0f}/{task.total:,.0f}")
