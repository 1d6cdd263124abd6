"""Memory that loading a draft leaves behind."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Final

_MAPS: Final = Path("/proc/self/smaps")
_DONT_NEED: Final = 4  # MADV_DONTNEED of Linux: the next access reads the file again


def release_pages(files: Iterable[Path]) -> int:
    """Give back the memory of the mappings of some files in this process.

    onnxruntime maps weights and packs most of them anew for its kernels when it loads them;
    the pages of the file stay resident although nothing reads them again. Those that are read
    again come back by themselves. Mappings that were written to are left alone. Does nothing
    where it cannot (neither Linux nor Android).

    Returns:
        bytes that were resident in the mappings.
    """
    if not sys.platform.startswith(("linux", "android")):
        return 0
    try:
        advise = ctypes.CDLL(None).madvise
        mappings = list(_mappings({str(file.resolve()) for file in files}))
    except (OSError, AttributeError):
        return 0
    released = 0
    for start, end, resident, written in mappings:
        if not written and advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONT_NEED):
            continue
        released += 0 if written else resident
    return released


def return_freed() -> None:
    """Give memory that was freed back to the system, as far as the C library can: what parsing a
    tokenizer leaves is otherwise kept for later. Does nothing where it cannot."""
    if sys.platform.startswith("linux"):
        try:
            ctypes.CDLL(None).malloc_trim(0)
        except (OSError, AttributeError):
            return


def _mappings(names: Container[str]) -> Iterator[tuple[int, int, int, int]]:
    """Start, end, resident bytes and written bytes of each mapping of the files."""
    start = end = resident = 0
    ours = False
    for line in _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        first, _, rest = line.partition(" ")
        if not first.endswith(":"):
            fields = rest.split(maxsplit=4)
            ours = len(fields) == 5 and fields[4] in names
            if ours:
                start, end = (int(part, 16) for part in first.split("-"))
        elif ours and first == "Rss:":
            resident = int(rest.split()[0]) << 10
        elif ours and first == "Anonymous:":
            yield start, end, resident, int(rest.split()[0]) << 10
