"""The command `cosd`.

It starts without its own extra installed, to say in one sentence how to install it.
Exit status: 0 done, 1 an error of this project, 2 a wrong command line or a missing
extra, 130 interrupted.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

NO_CLI = (
    "cosd: the command line needs the packages typer and rich; "
    "install them with: pip install 'edge-cosd[cli]'"
)


def main() -> int:
    """Run `cosd` with the arguments of this process; ends in `SystemExit` once typer is there."""
    try:
        from edge_sdk.cli.app import build

        build()(prog_name="cosd")
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in ("rich", "typer"):
            raise
        print(NO_CLI, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
