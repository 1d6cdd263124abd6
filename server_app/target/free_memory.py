"""How much memory a device could still give."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_MEMORY_FACTS = Path("/proc/meminfo")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device had no more memory. On a CPU torch has no error of its own for that."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def free_bytes(device: torch.device) -> int:
    """Bytes of memory that can be taken without pushing anything out. Page cache counts as
    free; where the system does not tell, half of its memory does."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        facts = dict(line.split(":", 1) for line in _MEMORY_FACTS.read_text().splitlines())
        return int(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
