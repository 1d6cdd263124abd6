from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

import pytest
import typer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from typer.testing import CliRunner

from edge_sdk.cli.vocab import vocab
from edge_sdk.draft.manifest import FileEntry, Manifest
from edge_sdk.errors import (
    CosdError,
    InvalidRequest,
    ManifestMismatch,
    ModelFolderInvalid,
    VocabularyMismatch,
)
from edge_sdk.vocab import read_tokenizer

APP = typer.Typer()
APP.command()(vocab)


def folder(path: Path, words: list[str], *, end: str = "<|endoftext|>") -> Path:
    path.mkdir()
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([end])
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    ours = folder(tmp_path / "target", ["a", "b", "c", "Ã", "[d"])
    theirs = folder(tmp_path / "draft", ["b", "c", "x"], end="<|im_end|>")
    return ours, theirs


def shown(*arguments: object) -> str:
    result = CliRunner().invoke(APP, [*map(str, arguments)], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return re.sub(r"[│┃]", "|", result.output)


def row(output: str, name: str) -> list[str]:
    (line,) = [x for x in output.splitlines() if x.startswith(f"| {name} ")]
    return [cell.strip() for cell in line.strip("| ").split("|")][1:]


def test_sizes_overlap_and_samples(pair: tuple[Path, Path]) -> None:
    output = shown(*pair)
    assert row(output, "ids") == ["6", "4"]
    assert row(output, "different byte strings") == ["5", "3"]
    assert row(output, "text, by bytes") == ["2", "40.0%", "66.7%"]
    assert row(output, "ends, by role") == ["1", "100.0%", "100.0%"]
    assert row(output, "end of text") == ["5", "-"]
    assert row(output, "end of turn") == ["-", "3"]
    # What only one side has; brackets and bytes that are no text included.
    for sample in ("'a'", r"b'\xc3'", "'[d'", "'x'"):
        assert sample in output


def test_share_of_a_text(pair: tuple[Path, Path], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("abcab")
    output = shown(*pair, "--text", text)
    assert row(output, "A") == ["5", "60.0%"]
    assert row(output, "B") == ["3", "100.0%"]


def test_a_pipe_is_read_once(pair: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = pair
    text = tmp_path / "text"
    text.write_text("the", encoding="utf-8")
    read, write = os.pipe()

    def send() -> None:
        with os.fdopen(write, "wb") as pipe:
            pipe.write((a / "tokenizer.json").read_bytes())

    sender = threading.Thread(target=send)
    sender.start()
    try:
        through = shown(f"/dev/fd/{read}", b, "--text", text)
    finally:
        sender.join()
        os.close(read)
    assert row(through, "ids") == row(shown(a, b), "ids")


def test_files_are_as_good_as_folders(pair: tuple[Path, Path]) -> None:
    first = shown(*pair, "--samples", 0)
    second = shown(*(path / "tokenizer.json" for path in pair), "--samples", 0)
    assert first == second
    assert "Only on one side" not in first


def exported(path: Path, *, fingerprint: str | None = None) -> Path:
    width = 8
    vocabulary = read_tokenizer(path, width=width)
    Manifest(
        name="toy",
        source="test",
        revision="1",
        architecture="LlamaForCausalLM",
        graph="tokenizer.json",
        bits=4,
        context=64,
        logits_width=width,
        vocabulary_fingerprint=fingerprint or vocabulary.fingerprint,
        roles={str(role): tuple(ids) for role, ids in vocabulary.roles.items()},
        prefix_ids=(),
        chat=None,
        files={"tokenizer.json": FileEntry.of(path / "tokenizer.json")},
        backend="test",
    ).write(path)
    return path


def test_an_exported_draft_is_as_wide_as_its_logits(pair: tuple[Path, Path]) -> None:
    output = shown(pair[0], exported(pair[1]))
    assert row(output, "ids") == ["6", "8"]
    assert row(output, "unused") == ["0", "4"]


def test_a_manifest_of_another_tokenizer_is_refused(pair: tuple[Path, Path]) -> None:
    with pytest.raises(ManifestMismatch, match="export the model again"):
        shown(pair[0], exported(pair[1], fingerprint="0" * 64))


def test_a_pair_without_overlap_shows_its_tables_and_fails(tmp_path: Path) -> None:
    ours, theirs = folder(tmp_path / "a", ["a", "b"]), folder(tmp_path / "b", ["c", "d"])
    result = CliRunner().invoke(APP, [str(ours), str(theirs)], env={"COLUMNS": "200"})
    assert isinstance(result.exception, VocabularyMismatch)
    assert "shares 0 of its 2 text tokens" in str(result.exception)
    assert "In common" in result.output


@pytest.mark.parametrize(
    ("content", "error"),
    [(None, ModelFolderInvalid), (b"", InvalidRequest), (b"\xff\xfe", InvalidRequest)],
)
def test_bad_texts_are_refused(
    pair: tuple[Path, Path], tmp_path: Path, content: bytes | None, error: type[CosdError]
) -> None:
    text = tmp_path / "text.txt"
    if content is not None:
        text.write_bytes(content)
    with pytest.raises(error, match=re.escape(str(text))):
        shown(*pair, "--text", text)


def test_missing_and_damaged_models_are_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match="does not exist"):
        shown(pair[0], tmp_path / "none")
    (pair[1] / "tokenizer.json").write_text(json.dumps({"model": 1}))
    with pytest.raises(ModelFolderInvalid, match="has no model section"):
        shown(*pair)
