"""The command `cosd`.

It starts without its own extra installed, to say in one sentence how to install it.
Exit status: 0 done, 1 an error of this project (a value that the command refuses is one), 2
a command line that typer refuses or a missing extra, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]

NO_CLI = (
    "cosd: the command line needs the packages typer and rich; "
    "install them with: pip install 'edge-cosd[cli]'"
)


class Terminated(SystemExit):
    """SIGTERM, raised in the main thread so that what is half done is cleaned up."""


def main() -> int:
    """Run `cosd` with the arguments of this process; ends in `SystemExit` once typer is there."""
    try:
        # A parent that has it ignored, or set already, keeps its way.
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
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
    except Terminated:
        print("terminated", file=sys.stderr)
        raise
    return 0


def _terminate(number: int, frame: object) -> None:
    # A second one does not wait for the cleaning up.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated(128 + number)


if __name__ == "__main__":
    sys.exit(main())
