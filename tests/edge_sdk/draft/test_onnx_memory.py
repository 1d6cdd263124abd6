"""Memory of a draft on onnxruntime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from edge_sdk.draft.onnx import OnnxDraft

Folder = Callable[..., Path]


@pytest.mark.parametrize(("arena", "asked"), [("cpu:0", [0, 17, 300]), ("cpu:9", [0])])
def test_only_the_end_of_a_prompt_shrinks_the_arena(
    bag_folder: Folder, monkeypatch: pytest.MonkeyPatch, arena: str, asked: list[int]
) -> None:
    """Opening asks once; an onnxruntime without an arena refuses, as it refuses one that is not."""
    shrunk: list[int] = []
    length = 0

    given = onnxruntime.RunOptions

    def add(self: Any, key: str, value: str) -> None:
        assert value == "cpu:0"
        given.add_run_config_entry(self, key, arena)
        shrunk.append(length)

    options = type("Options", (given,), {"add_run_config_entry": add})
    monkeypatch.setattr(onnxruntime, "RunOptions", options)
    with OnnxDraft.open(bag_folder(), threads=1) as draft:
        for length in (1, 16, 17, 300):
            draft.reset()
            draft.append([7] * length)
            assert np.isfinite(draft.next_logits()).all()
    assert shrunk == asked


MEMORY = """
import sys
from pathlib import Path
import numpy as np
import onnxruntime
from edge_sdk.draft.onnx import OnnxDraft

def resident(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) / 1024

folder = Path(sys.argv[1])
weights = (folder / "model.onnx.data").stat().st_size / 2**20
with OnnxDraft.open(folder, threads=1) as draft:
    pass
before = resident("VmRSS")
draft = OnnxDraft.open(folder, threads=1)
draft.append([1, 2, 3])
draft.next_logits()
held = resident("VmRSS") - before
peak = resident("VmHWM") - before
draft.close()
left = resident("VmRSS") - before
print(weights, held, peak, left)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_weights_are_held_once_and_given_back(bag_folder: Folder) -> None:
    folder = bag_folder(width=20_000, head=512, manifest={"logits_width": 20_000})
    output = subprocess.run(
        [sys.executable, "-c", MEMORY, str(folder)], capture_output=True, text=True, check=True
    ).stdout
    weights, held, peak, left = map(float, output.split())
    assert weights > 150
    assert held < 1.2 * weights
    assert peak < 1.7 * weights  # the head is repacked while its file is still mapped
    assert left < 0.1 * weights
