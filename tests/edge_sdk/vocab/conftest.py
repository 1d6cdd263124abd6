"""Vocabularies of the tests: two real ones without weights, and generated ones."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.vocab import TokenRole, Vocabulary

_SENTENCEPIECE = "mistral_instruct_tokenizer_240323.model.v3"
_TEKKEN = "tekken_240911.json"


def _mistral_data(name: str) -> Path:
    # The package itself is heavy to import; only its data are needed.
    spec = importlib.util.find_spec("mistral_common")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data" / name


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Fields of a protocol buffer message: number, then varint or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            number, at = _varint(data, at)
            yield tag >> 3, number
        else:
            size, at = (_varint(data, at)) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
            yield tag >> 3, data[at : at + size]
            at += size


def sentencepiece_vocabulary(path: Path) -> Vocabulary:
    """Read a SentencePiece model: field 1 holds pieces, each with 1 text and 3 type."""
    pieces: list[bytes] = []
    special: dict[int, list[int]] = {2: [], 3: [], 6: []}
    for number, entry in _fields(path.read_bytes()):
        if number != 1:
            continue
        assert isinstance(entry, bytes)
        parts = dict(_fields(entry))
        text, kind = parts[1], parts.get(3, 1)
        assert isinstance(text, bytes)
        assert isinstance(kind, int)
        if kind in special:
            special[kind].append(len(pieces))
        if kind == 6:
            pieces.append(bytes.fromhex(text.decode()[3:5]))
        else:
            pieces.append(text.decode().replace("\u2581", " ").encode())
    return Vocabulary.from_token_bytes(
        pieces,
        byte_fallback=special[6],
        control=[*special[2], *special[3]],
        roles={
            TokenRole.UNKNOWN: special[2],
            TokenRole.BEGIN: [special[3][0]],
            TokenRole.END_OF_TEXT: [special[3][1]],
        },
    )


def tekken_vocabulary(path: Path) -> Vocabulary:
    """Read a tekken file: special ids first (unknown, begin, end, ...), then raw bytes by rank."""
    content = json.loads(path.read_bytes())
    config = content["config"]
    special = config["default_num_special_tokens"]
    ranks = config["default_vocab_size"] - special
    texts = [base64.b64decode(entry["token_bytes"]) for entry in content["vocab"][:ranks]]
    return Vocabulary.from_token_bytes(
        [b""] * special + texts,
        roles={
            TokenRole.UNKNOWN: [0],
            TokenRole.BEGIN: [1],
            TokenRole.END_OF_TEXT: [2],
        },
    )


@pytest.fixture(scope="session")
def sentencepiece() -> Vocabulary:
    return sentencepiece_vocabulary(_mistral_data(_SENTENCEPIECE))


@pytest.fixture(scope="session")
def tekken() -> Vocabulary:
    return tekken_vocabulary(_mistral_data(_TEKKEN))
