from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge_sdk.errors import InvalidRequest
from export.check.texts import read_prompts


def test_prompts_a_line_each(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("one\n\n  \ntwo\\nlines\n", encoding="utf-8")
    assert read_prompts(tmp_path / "p.txt") == ("one", "two\nlines")


def test_json_lines(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('"a"\n{"question": "b", "answer": "c"}\n{"prompt": "d"}\n')
    assert read_prompts(tmp_path / "p.jsonl") == ("a", "b", "d")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", None, "No such file"),
        ("p.txt", b"", "is empty"),
        ("p.txt", b"\xff\xfe", "no UTF-8"),
        ("p.jsonl", b'"a"\n{', "line 2 is no JSON"),
        ("p.jsonl", b'{"answer": "x"}', "line 1 has no text under prompt"),
        ("p.jsonl", b"3", "line 1 has no text"),
    ],
)
def test_files_that_hold_no_prompts(tmp_path: Path, name: str, content: Any, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=message) as caught:
        read_prompts(path)
    assert str(path) in caught.value.message
