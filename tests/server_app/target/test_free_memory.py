from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from server_app.target import free_memory

CPU = torch.device("cpu")
TOTAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_reads_what_the_system_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = tmp_path / "meminfo"
    facts.write_text("MemTotal:  8000 kB\nMemFree:  10 kB\nMemAvailable:    3000 kB\n")
    monkeypatch.setattr(free_memory, "_MEMORY_FACTS", facts)
    assert free_memory.free_bytes(CPU) == 3000 * 1024


@pytest.mark.parametrize("content", [None, "MemTotal: 1 kB\n", "nothing"])
def test_half_the_memory_where_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    facts = tmp_path / "meminfo"
    if content is not None:
        facts.write_text(content)
    monkeypatch.setattr(free_memory, "_MEMORY_FACTS", facts)
    assert free_memory.free_bytes(CPU) == TOTAL // 2


def test_a_cpu_without_memory_is_told_from_other_errors() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert free_memory.is_out_of_memory(caught.value)
    assert free_memory.is_out_of_memory(torch.OutOfMemoryError())
    assert not free_memory.is_out_of_memory(RuntimeError("shapes do not fit"))
