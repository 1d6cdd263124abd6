"""Memory that loading a draft leaves behind."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_MAPS: Final = Path("/proc/self/smaps")
_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD of glibc
_PIECE: Final = 128 * 1024  # bytes
_LARGEST_PIECE: Final = 32 * 1024 * 1024
_DONT_NEED: Final = 4  # MADV_DONTNEED of Linux: the next access reads the file again


def release_pages(files: Iterable[Path] | None = None) -> int:
    """Give back the memory of the mappings of some files in this process, or of all files,
    shared libraries with the code that only loading needs among them.

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
        names = None if files is None else {str(file.resolve()) for file in files}
        mappings = list(_mappings(names))
    except (OSError, AttributeError):
        return 0
    released = 0
    for start, end, resident, written in mappings:
        if not written and advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONT_NEED):
            continue
        released += 0 if written else resident
    return released


@contextmanager
def apart() -> Iterator[None]:
    """Let what is allocated inside in large pieces lie in memory of its own, so that what is freed
    again leaves no holes that stay resident: parsing and packing need much for a short while.
    Does nothing where the C library is not glibc."""
    option = _malloc_option()
    if option is not None:
        option(_MMAP_THRESHOLD, _PIECE)
    try:
        yield
    finally:
        if option is not None:
            # Where glibc's own adjustment ends up in a process that uses large arrays.
            option(_MMAP_THRESHOLD, _LARGEST_PIECE)


def _malloc_option() -> Callable[[int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None)
        _ = library.gnu_get_libc_version
        option: Callable[[int, int], int] = library.mallopt
    except (OSError, AttributeError):
        return None
    return option


def return_freed() -> None:
    """Give memory that was freed back to the system, as far as the C library can: what parsing a
    tokenizer or a long pass leaves is otherwise kept for later. Takes about a millisecond. Does
    nothing where it cannot."""
    if sys.platform.startswith("linux"):
        try:
            ctypes.CDLL(None).malloc_trim(0)
        except (OSError, AttributeError):
            return


def _mappings(names: Container[str] | None) -> Iterator[tuple[int, int, int, int]]:
    """Start, end, resident bytes and written bytes of each mapping of the files; None: of any."""
    start = end = resident = 0
    ours = False
    with _MAPS.open(encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            first, _, rest = line.rstrip("\n").partition(" ")
            if not first.endswith(":"):
                fields = rest.split(maxsplit=4)
                name = fields[4] if len(fields) == 5 else ""
                ours = name.startswith("/") and (names is None or name in names)
                if ours:
                    start, end = (int(part, 16) for part in first.split("-"))
            elif ours and first == "Rss:":
                resident = int(rest.split()[0]) << 10
            elif ours and first == "Anonymous:":
                yield start, end, resident, int(rest.split()[0]) << 10
