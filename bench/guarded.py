"""`cosd` as a child that does not outlive its parent: `python -m bench.guarded serve ...`.

The parent holds the other end of standard input. However it ends, killed included, that
end closes and the child ends too. (Linux alone could ask the kernel for a signal.)
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from edge_sdk.cli.main import main


def end_with_parent() -> None:
    """Wait for the end of standard input, then end this process."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, name="guard", daemon=True).start()
    sys.exit(main())
