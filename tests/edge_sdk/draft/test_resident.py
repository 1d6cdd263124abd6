from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

from edge_sdk.draft.resident import release_pages

SIZE = 64 * mmap.PAGESIZE
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/smaps")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a file of weights"
    path.write_bytes(bytes(range(256)) * (SIZE // 256))
    return path


@linux
def test_pages_that_were_read_are_given_back_and_read_again(file: Path) -> None:
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), SIZE, mmap.MAP_PRIVATE) as mapped:
        before = mapped[:]
        assert release_pages([file]) == SIZE
        assert release_pages([file]) == 0
        assert mapped[:] == before
        assert release_pages([file]) == SIZE


@linux
def test_a_mapping_that_was_written_to_keeps_what_was_written(file: Path) -> None:
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), SIZE, mmap.MAP_PRIVATE) as mapped:
        mapped[:4] = b"ours"
        assert release_pages([file]) == 0
        assert mapped[:4] == b"ours"


def test_other_files_and_none(file: Path, tmp_path: Path) -> None:
    assert release_pages([file]) == 0
    assert release_pages([tmp_path / "missing"]) == 0
