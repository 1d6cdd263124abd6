from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_sdk.errors import InvalidRequest, ModelFolderInvalid
from server_app.target.hugging_face import HuggingFaceTarget
from server_app.target.loading import load_target
from server_app.target.model import Chunk
from server_app.target.toy import ToyTarget


def test_toys_by_name() -> None:
    seven, again, other = load_target("toy:7"), load_target("toy:7"), load_target("toy")
    assert isinstance(seven, ToyTarget)
    assert (seven.name, other.name) == ("toy:7", "toy:0")
    rows = [
        target.forward([Chunk(target.new_sequence(), [65], 1)])[0].tolist()
        for target in (seven, again, other)
    ]
    assert rows[0] == rows[1] != rows[2]


def test_folders(tiny_folder: Callable[[str], Path]) -> None:
    said: list[str] = []
    target = load_target(
        str(tiny_folder("llama")), name="small", dtype="float32", progress=said.append
    )
    assert isinstance(target, HuggingFaceTarget)
    assert target.name == "small"
    assert (len(target.vocabulary), target.context) == (320, 256)
    assert [line.split(":")[0] for line in said] == ["small"] * 4
    assert "float32 on" in said[1]
    assert "as configured" in said[1]


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    for source in ("toy:", "toy:x", "toy:-1", "toy:1.5"):
        with pytest.raises(InvalidRequest, match="toy:SEED"):
            load_target(source)
    with pytest.raises(ModelFolderInvalid, match="is not a folder"):
        load_target(tmp_path / "toy")
    with pytest.raises(ModelFolderInvalid, match="is not a folder"):
        load_target("google/gemma-3-270m")


def test_a_toy_needs_no_transformers() -> None:
    code = (
        "import sys; from server_app.target.loading import load_target; load_target('toy'); "
        "assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_cache_of_so_many_tokens(tiny_folder: Callable[[str], Path]) -> None:
    assert load_target("toy", cache_tokens=300).cache_limit == 300
    with pytest.raises(InvalidRequest, match="too small for any text"):
        load_target("toy", cache_tokens=1)
    folder = tiny_folder("llama")
    target = load_target(folder, dtype="float32", cache_tokens=320)
    assert target.cache_limit == 320
    target.forward([Chunk(target.new_sequence(), [1] * 200, 0)])
    for tokens in (1, 10**12):
        with pytest.raises(InvalidRequest, match=f"a cache of {tokens} tokens .* MB are free"):
            load_target(folder, dtype="float32", cache_tokens=tokens)
