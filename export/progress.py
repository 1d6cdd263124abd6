"""How preparing a model tells a person how far it is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self


class Stage(Protocol):
    """One step of the work while it runs."""

    def advance(self, amount: int = 1) -> None:
        """`amount` more of the stage's total (bytes, tensors, tokens: what the stage counts)."""
        ...


class Progress(Protocol):
    """Where a long piece of work reports to. Stages follow one another or nest."""

    def stage(self, name: str, total: int | None = None) -> AbstractContextManager[Stage]:
        """Begin a step: `with progress.stage("quantise", 210) as stage: ... stage.advance()`.

        Args:
            name: a few words for a person.
            total: amount of work, None where it is not known beforehand.
        """
        ...

    def note(self, text: str) -> None:
        """A sentence that a person should read, e.g. under which terms a model comes."""
        ...


class NoProgress:
    """Reports nothing."""

    def stage(self, name: str, total: int | None = None) -> _SilentStage:
        return _SilentStage()

    def note(self, text: str) -> None:
        pass


class _SilentStage:
    def advance(self, amount: int = 1) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass
