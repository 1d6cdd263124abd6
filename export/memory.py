"""Whether there is memory enough, asked before the work starts."""

from __future__ import annotations

from pathlib import Path

import psutil

from edge_sdk.errors import PreparationError

_CGROUP = Path("/sys/fs/cgroup")
# torch, transformers and onnxruntime before any weight is loaded.
_PROGRAMS = 500_000_000


def available_memory() -> int:
    """Bytes that this process can still take: of the machine, swap included, and within the
    limit of its container."""
    machine = int(psutil.virtual_memory().available + psutil.swap_memory().free)
    left = [_left(_CGROUP, "memory.max", "memory.current")]
    left.append(_left(_CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"))
    return min([machine, *(value for value in left if value is not None)])


def require_memory(needed: int, what: str) -> None:
    """Check that `needed` bytes beside those of the programs themselves can be had.

    Raises:
        PreparationError: they cannot.
    """
    needed += _PROGRAMS
    available = available_memory()
    if available < needed:
        raise PreparationError(
            f"{what} needs about {needed / 1e9:,.1f} GB of memory, only {available / 1e9:,.1f} GB "
            "are available; close other programs, or do it on a machine with more memory and copy "
            "the folder"
        )


def _left(folder: Path, limit: str, used: str) -> int | None:
    try:
        return int((folder / limit).read_text()) - int((folder / used).read_text())
    except (OSError, ValueError):  # no such container, or no limit ("max")
        return None
