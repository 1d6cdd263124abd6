"""The frame around every `cosd` command: help, version, errors, interruption."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from edge_sdk.cli.commands import discover
from edge_sdk.cli.lazy import LazyCommand, unusable
from edge_sdk.errors import CosdError

__all__ = ["build", "one_line"]

DISTRIBUTION = "edge-cosd"
EPILOG = "`cosd COMMAND --help` explains a command."


class CosdGroup(TyperGroup):
    """All installed commands; an error of any of them becomes one line and an exit status."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.installed = {command.name: command for command in discover()}
        for name, command in self.installed.items():
            self.commands[name] = LazyCommand(command)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CosdError as error:
            print(f"error: {one_line(error.message)} ({error.code})", file=sys.stderr)
            raise typer.Exit(1) from error
        except ModuleNotFoundError as absent:
            command = self.installed.get(ctx.invoked_subcommand or "")
            if command is None or not command.missing:
                raise
            raise unusable(command, str(absent)) from absent
        except KeyboardInterrupt as interruption:
            # The text that was being written has no line end yet.
            print("\ninterrupted" if sys.stdout.isatty() else "interrupted", file=sys.stderr)
            raise typer.Exit(130) from interruption


def build() -> typer.Typer:
    """The application with every command that is installed; none is imported yet."""
    app = typer.Typer(
        cls=CosdGroup,
        no_args_is_help=True,
        add_completion=False,
        # Help texts hold names such as edge-cosd[server], which rich markup would swallow.
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EPILOG,
    )
    app.callback()(_root)
    return app


def one_line(message: str) -> str:
    """`message` without line breaks or control characters: part of it may come from a server."""
    return "".join(c for c in " ".join(message.split()) if c.isprintable())


def _root(
    version: Annotated[
        bool | None,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = None,
) -> None:
    """Write with a small model on this device and a big one on a server.

    The device drafts a few tokens, the server checks them in one pass, and the text is
    distributed as if the big model had written it alone.
    """


def _print_version(wanted: bool | None) -> None:
    if wanted:
        try:
            number = version(DISTRIBUTION)
        except PackageNotFoundError:
            number = "not installed, run from its source folder"
        print(f"cosd {number}")
        raise typer.Exit
