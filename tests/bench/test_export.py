from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from bench.export import ratios, table_of
from bench.graph_timing import Times, take_turns
from bench.remembered import Remembered
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.draft.toy_text import toy_byte_vocabulary
from edge_sdk.vocab import Vocabulary

VOCABULARY = toy_byte_vocabulary([b" the"])


def test_turns_are_taken() -> None:
    drafts = {str(seed): ToyDraft.random(seed, VOCABULARY) for seed in range(2)}
    moved = []
    times = take_turns(
        drafts, steps=8, prompt=20, prompts=3, advance=lambda: moved.append(drafts["0"].length)
    )
    assert set(times) == {"0", "1"}
    assert all(found.decode > 0 and found.prefill > 0 for found in times.values())
    assert moved == [68, 72, 20, 20, 20]
    assert [draft.length for draft in drafts.values()] == [0, 0]


def test_ratios() -> None:
    line = ratios(
        {"default": Times(0.01, 0.5), "unfused4": Times(0.02, 1.0), "fp32": Times(0.05, 2.0)}
    )
    assert line["decode_ratio_unfused4"] == 0.5
    assert line["decode_ratio_fp32"] == 0.2
    assert line["prefill_ratio_unfused4"] == 0.5
    assert "pruned_decode_ratio" not in line
    assert line["milliseconds"]["fp32"] == {"decode": 50.0, "prefill": 2000.0}


def test_a_bar_that_is_missed_is_not_called_met() -> None:
    line = {"draft": "d", "threads": 2, "rss_ratio": 2.04, "load_s": 1.0, "kl": 0.2}
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(table_of(line | {"acceptance_difference": -0.04, "decode_ratio_fp32": 0.2}))
    rows = {
        cells[0]: cells[1:]
        for text in console.export_text().splitlines()
        if len(cells := [cell.strip() for cell in text.strip("│").split("│")]) == 4
    }
    assert rows == {
        "rss_ratio": ["2.04", "<= 2", "NO"],
        "load_s": ["1", "<= 1", "yes"],
        "kl": ["0.2", "", ""],
        "acceptance_difference": ["-0.04", ">= -0.03", "NO"],
        "decode_ratio_fp32": ["0.2", "<= 0.35", "yes"],
    }


class Counted:
    """A target whose logits name the text, and which counts what it computes."""

    vocabulary: Vocabulary = VOCABULARY

    def __init__(self) -> None:
        self.computed = 0
        self._text: list[float] = []

    def begin(self, prompt: str) -> NDArray[np.float32]:
        self._text = [float(len(prompt))]
        return self._row(1)

    def extend(self, ids: Sequence[int]) -> NDArray[np.float32]:
        self._text += map(float, ids)
        return self._row(len(ids))

    def _row(self, tokens: int) -> NDArray[np.float32]:
        self.computed += tokens
        return np.array(self._text, dtype=np.float32)


def test_a_text_is_computed_once() -> None:
    target = Counted()
    laws = Remembered(target)

    def write(prompt: str, *ids: int) -> list[list[float]]:
        return [laws.begin(prompt).tolist(), *(laws.extend([token]).tolist() for token in ids)]

    first = write("ab", 7, 8)
    assert first == [[2.0], [2.0, 7.0], [2.0, 7.0, 8.0]]
    assert write("abc", 7) == [[3.0], [3.0, 7.0]]
    computed = target.computed
    assert write("ab", 7, 8) == first
    assert target.computed == computed == 5
    assert write("ab", 7, 8, 9)[-1] == [2.0, 7.0, 8.0, 9.0], "goes on after another text"
    assert write("ab", 7, 5)[-1] == [2.0, 7.0, 5.0], "another branch"


@pytest.mark.models
def test_the_last_line_has_every_key(
    program: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = program("bench.export", "--quick", "--target", "")
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout.splitlines()[-1])
    for name in ("decode_ratio_unfused4", "decode_ratio_fp32", "prefill_ratio_unfused4"):
        assert 0 < line[name] < 2
    for name in ("folder_mb", "load_s", "rss_ratio", "kl", "top1", "random_kl", "random_top1"):
        assert line[name] > 0
