"""Prompt files in the formats of their owners, and files that are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bench.prompt_files import read_prompts
from edge_sdk.errors import InvalidRequest

GSM8K = {"question": "Ann has 2 eggs and buys 3. How many?", "answer": "2+3=<<2+3=5>>5.\n#### 5"}
HUMAN_EVAL = {
    "task_id": "HumanEval/0",
    "prompt": "def one():\n",
    "entry_point": "one",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}
MT_BENCH = {"question_id": 81, "category": "writing", "turns": ["Write a poem.", "Again."]}


def write(folder: Path, *records: object, name: str = "prompts.jsonl") -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


def test_gsm8k(tmp_path: Path) -> None:
    found = read_prompts(write(tmp_path, GSM8K, GSM8K))
    assert found.format == "GSM8K"
    assert len(found.problems) == 2
    assert found.problems[0].prompt == f"Question: {GSM8K['question']}\nAnswer:"
    assert found.problems[0].answer.endswith("#### 5")


@pytest.mark.parametrize("packed", [False, True])
def test_human_eval_plain_and_compressed(tmp_path: Path, packed: bool) -> None:
    file = write(tmp_path, HUMAN_EVAL)
    if packed:
        file = tmp_path / "HumanEval.jsonl.gz"
        file.write_bytes(gzip.compress(json.dumps(HUMAN_EVAL).encode()))
    found = read_prompts(file)
    assert found.format == "HumanEval"
    assert [problem.prompt for problem in found.problems] == ["def one():\n"]


def test_mt_bench_asks_the_first_turn(tmp_path: Path) -> None:
    found = read_prompts(write(tmp_path, MT_BENCH))
    assert found.format == "MT-Bench"
    assert found.problems[0].prompt == "User: Write a poem.\n\nAssistant:"


def test_blank_lines_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f"\n{json.dumps(GSM8K)}\n\n{json.dumps(GSM8K)}\n", encoding="utf-8")
    assert len(read_prompts(file).problems) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"hello\n", "line 1 is no JSON"),
        (b"[1, 2]\n", "line 1 is no JSON object"),
        (b'{"text": "a"}\n', "fields text, which is no format"),
        (b"{}\n", "fields none"),
        (json.dumps(GSM8K).encode() + b'\n{"question": "x"}\n', "line 2 has no field 'answer'"),
        (json.dumps(GSM8K).encode() + b"\n{\n", "line 2 is no JSON"),
        (b'{"question": 5, "answer": "#### 5"}', "'question' is no text"),
        (b'{"question": " ", "answer": "#### 5"}', "'question' is no text"),
        (b'{"turns": []}', "'turns' is no list"),
        (b'{"turns": [7]}', "'turns' is no list"),
        (b"\xff\xfe{}", "no UTF-8"),
        (gzip.compress(json.dumps(GSM8K).encode() * 50)[:60], "compressed data is damaged"),
        (b"\x1f\x8bno gzip at all", "prompts"),
        (b"[" * 200_000, "line 1 is no JSON"),
    ],
)
def test_bad_files_are_told_in_a_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(content)
    with pytest.raises(InvalidRequest) as caught:
        read_prompts(file)
    assert said in caught.value.message
    assert str(file) in caught.value.message
    assert caught.value.field == "prompts"


def test_a_file_that_is_not_there_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(InvalidRequest, match=r"No such file|Is a directory"):
            read_prompts(path)
