"""Scores, and `python -m bench.consultant` on a toy pair."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.consultant import settings, summed_nll
from bench.prompt_files import Problem
from bench.scores import answer_of, is_right, with_examples
from edge_sdk.draft.toy_text import toy_vocabulary
from server_app.target.toy import ToyTarget

KEYS = {"target_calls_per_token", "acceptance", "mean_target_nll", "reported_target_nll", "right"}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 2+3=<<2+3=5>>5 eggs.\n#### 5", 5),
        ("it is $1,234.50 in all.\n#### 1,234.50\nQuestion: 7 more", 1234.5),
        ("she has 12 - 4 = 8", 8),
        ("#### -3 and 9", -3),
        ("#### $18", 18),
        ("4 apples ####", 4),
        ("4 apples\nQuestion: what is 9?", 4),
        ("no number", None),
        ("", None),
    ],
)
def test_the_number_a_text_ends_up_with(text: str, number: float | None) -> None:
    assert answer_of(text) == number


def test_right_is_the_official_number() -> None:
    problem = Problem("Question: x\nAnswer:", "a long way\n#### 1,050")
    assert is_right(" 1000 + 50 = 1050\n#### 1050", problem)
    assert not is_right(" 1000 + 51\n#### 1051", problem)
    assert not is_right("", problem)
    assert not is_right("", Problem("p", "no number"))


def test_examples_are_solved_before_the_question() -> None:
    one, two = Problem("Question: a\nAnswer:", "1\n#### 1"), Problem("Question: b\nAnswer:", "2")
    assert with_examples(two, [one]) == "Question: a\nAnswer: 1\n#### 1\n\nQuestion: b\nAnswer:"
    assert with_examples(two, []) == two.prompt


def test_summed_nll_is_that_of_the_table() -> None:
    laws = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.3, 0.3, 0.4]])
    target = ToyTarget.from_laws(toy_vocabulary([b"a", b"b", b"c"], controls=()), laws)
    after_a = -np.log(laws[1][2]) - np.log(laws[3][0])
    assert summed_nll(target, "a", [2, 0]) == pytest.approx(after_a, abs=1e-5)
    assert summed_nll(target, "a", []) == 0


def test_both_ways_to_find_epsilon_are_compared_at_both_gammas() -> None:
    names = [(row.name.split()[0], row.gamma) for row in settings()]
    assert names.count(("hybrid", 6)) == names.count(("hybrid", 20)) == 1
    assert names.count(("consultant", 6)) == names.count(("consultant", 20)) == 2


def test_the_last_line_is_json_and_the_two_sums_agree(tmp_path: Path) -> None:
    problems = [
        {"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(98764, 98768)
    ]
    file = tmp_path / "gsm8k.jsonl"
    file.write_text("\n".join(json.dumps(each) for each in problems), encoding="utf-8")
    command = [sys.executable, "-m", "bench.consultant", "--target", "toy:1", "--draft", "toy:2"]
    done = subprocess.run(
        [*command, "--limit", "2", "--tokens", "24", "--prompts", str(file)],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    lines = done.stdout.splitlines()
    figures = json.loads(lines[-1])["consultant"]
    assert len(figures) == 7
    assert "not able to do this task" in lines[-2]
    for name, row in figures.items():
        assert set(row) >= KEYS
        assert row["mean_target_nll"] > 0
        if name.startswith("consultant"):
            assert row["reported_target_nll"] == pytest.approx(row["mean_target_nll"], rel=1e-3)
