from __future__ import annotations

import json
from pathlib import Path

from export.compact_json import copy_compact

DOCUMENT = {
    "model": {"vocab": {"Ġthe": 3, "é": 4, "\ud83d": 5, "😀": 6}, "merges": [["a", "b"]]},
    "scores": [-1.1754943508222875e-38, 0.1, 1e300, 12345678901234567890],
    "nothing": None,
    "spaces stay ": " a  b\n",
}


def test_the_same_document_in_fewer_bytes(tmp_path: Path) -> None:
    source, out = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text(json.dumps(DOCUMENT, indent=2), encoding="utf-8")
    copy_compact(source, out)
    assert list(json.loads(out.read_bytes()).items()) == list(DOCUMENT.items())
    assert out.stat().st_size < 0.7 * source.stat().st_size
    assert "é".encode() in out.read_bytes()
