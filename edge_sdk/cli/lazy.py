"""A command that is listed without being imported, and imported when it is run."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from edge_sdk.cli.commands import InstalledCommand, summary

__all__ = ["LazyCommand", "unusable"]


class LazyCommand(TyperCommand):
    """Stands for an installed command in help and completion, and becomes it when run."""

    def __init__(self, command: InstalledCommand) -> None:
        text = summary(command.entry) or f"From {command.distribution}."
        if command.missing:
            text = f"{text} (needs {command.install.replace(chr(39), '')})"
        super().__init__(name=command.name, callback=None, help=text)
        self.installed = command

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Context of the real command.

        Raises:
            typer.Exit: status 2, after a line that says what to install.
        """
        return _load(self.installed).make_context(info_name, args, parent=parent, **extra)


def _load(command: InstalledCommand) -> Any:
    try:
        import_module(command.entry.module)
    except ModuleNotFoundError as missing:
        raise unusable(command, str(missing)) from missing
    try:
        loaded = command.entry.load()
    except AttributeError as missing:
        raise unusable(command, str(missing)) from missing
    if isinstance(loaded, typer.Typer):
        real: Any = typer.main.get_command(loaded)
    elif callable(loaded):
        frame = typer.Typer(
            add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False
        )
        frame.command(name=command.name, context_settings={"help_option_names": ["-h", "--help"]})(
            loaded
        )
        real = typer.main.get_command(frame)
    else:
        raise unusable(command, f"{command.entry.value} is neither a function nor a typer.Typer")
    real.name = command.name
    return real


def unusable(command: InstalledCommand, reason: str) -> typer.Exit:
    """Say why a command cannot run and how to repair it; the caller raises the result."""
    if command.missing:
        why = f"needs packages that are not installed ({', '.join(command.missing)})"
        repair = "install them"
    else:
        why = f"cannot be loaded ({reason})"
        repair = f"install {command.distribution} again"
    print(f"error: cosd {command.name} {why}; {repair} with: {command.install}", file=sys.stderr)
    return typer.Exit(2)
