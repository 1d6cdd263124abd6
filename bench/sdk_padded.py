"""SIMULATION: `cosd serve` whose target takes longer than it does, as a bigger one would.

python -m bench.sdk_padded serve ...   with the milliseconds a pass in BENCH_PAD_TARGET_MS
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import torch

from bench.guarded import end_with_parent
from edge_sdk.cli.main import main
from server_app.target import loading
from server_app.target.model import Chunk, TargetModel

PAD_VARIABLE: Final = "BENCH_PAD_TARGET_MS"


def padded(target: TargetModel, seconds: float) -> TargetModel:
    """The same target, whose every pass takes so many seconds more, with the cores idle."""
    forward = target.forward

    def slower(chunks: Sequence[Chunk]) -> list[torch.Tensor]:
        result = forward(chunks)
        time.sleep(seconds)
        return result

    setattr(target, "forward", slower)  # noqa: B010
    return target


def pad_every_target(seconds: float) -> None:
    """Whatever is loaded from now on is `padded`."""
    load = loading.load_target

    def load_padded(*arguments: Any, **options: Any) -> TargetModel:
        return padded(load(*arguments, **options), seconds)

    setattr(loading, "load_target", load_padded)  # noqa: B010


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, name="guard", daemon=True).start()
    pad_every_target(float(os.environ[PAD_VARIABLE]) / 1e3)
    sys.exit(main())
