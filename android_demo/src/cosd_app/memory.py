"""How much memory the device has left."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MEMORY_INFO: Final = Path("/proc/meminfo")  # Linux and Android; an app may read it
LEAST_FREE: Final = 200 << 20  # bytes; below, Android begins to end apps
LEAST_SHARE: Final = 0.05


def low_memory(path: Path = MEMORY_INFO) -> bool:
    """The system is about to run out. False where it does not tell."""
    try:
        lines = path.read_text("ascii").splitlines()
    except (OSError, ValueError):
        return False
    kilobytes = {}
    for line in lines:
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if number and number[0].isdigit():
            kilobytes[name] = int(number[0])
    if "MemAvailable" not in kilobytes or "MemTotal" not in kilobytes:
        return False
    free, total = 1024 * kilobytes["MemAvailable"], 1024 * kilobytes["MemTotal"]
    return free < max(LEAST_FREE, LEAST_SHARE * total)
