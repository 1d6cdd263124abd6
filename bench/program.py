"""How a program of this folder runs: options, errors as one line, exit status."""

from __future__ import annotations

import sys

import typer

from edge_sdk.errors import CosdError


def run(app: typer.Typer, module: str) -> int:
    """Run `python -m <module>`. Status 0 done, 1 an error of this project, 2 a wrong command
    line, 130 interrupted."""
    try:
        app(prog_name=f"python -m {module}")
    except CosdError as error:
        print(f"error: {error.message} ({error.code})", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    return 0
