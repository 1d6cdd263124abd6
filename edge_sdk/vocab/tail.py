"""Bytes in mid-text -> ids of the draft."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from tokenizers import Tokenizer

from edge_sdk.vocab.vocabulary import Vocabulary


class TailEncoder:
    """Encodes bytes that continue a text.

    UTF-8 goes through the tokenizer, without beginning token or prefix space, and with the
    spelling of a special token read as plain text. What is not UTF-8 becomes single-byte tokens.
    The ids stand for exactly the bytes given, except for bytes that no token can spell, which
    are left out; no unknown token, end token or U+FFFD ever takes their place.

    Args:
        vocabulary: the draft's tokens.
        tokenizer: its tokenizer; a private copy is made, since mid-text needs other settings.
    """

    def __init__(self, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
        self._pieces = vocabulary.pieces
        self._ids = vocabulary.ids_by_bytes
        self._longest = max(map(len, vocabulary.pieces))
        self._tokenizer = _in_mid_text(tokenizer)

    def __call__(self, data: bytes) -> list[int]:
        """Ids of `data`, which may begin or end inside a character."""
        ids: list[int] = []
        for part, valid in _utf8_spans(data):
            ids += self._encode(part) if valid else self._longest_match(part)
        return ids

    def _encode(self, part: bytes) -> list[int]:
        ids = self._tokenizer.encode(part.decode("utf-8"), add_special_tokens=False).ids
        if self._spells(ids) == part:
            return list(ids)
        # Normalisation changed the text, or the model has no token for a character.
        return self._longest_match(part)

    def _spells(self, ids: list[int]) -> bytes | None:
        if any(token >= len(self._pieces) for token in ids):
            return None
        pieces = [self._pieces[token] for token in ids]
        # A token without bytes is the unknown token or another that has no place in a text.
        return b"".join(pieces) if all(pieces) else None

    def _longest_match(self, part: bytes) -> list[int]:
        ids: list[int] = []
        at = 0
        while at < len(part):
            for size in range(min(self._longest, len(part) - at), 0, -1):
                token = self._ids.find(part[at : at + size])
                if token is not None:
                    ids.append(token)
                    at += size
                    break
            else:
                at += 1
        return ids


def _utf8_spans(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """`data` cut into runs of whole characters (True) and single bytes of none (False)."""
    # Each byte of no character becomes one surrogate, which no valid UTF-8 contains.
    text = data.decode("utf-8", "surrogateescape")
    for valid, run in groupby(text, lambda character: not "\udc80" <= character <= "\udcff"):
        if valid:
            yield "".join(run).encode("utf-8"), True
        else:
            for character in run:
                yield bytes([ord(character) - 0xDC00]), False


def _in_mid_text(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer with other settings over the same model: tokens and merges, which are nearly
    all of its memory, are shared."""
    copy = Tokenizer(tokenizer.model)
    copy.normalizer, copy.pre_tokenizer = _sections(tokenizer)
    copy.decoder = tokenizer.decoder
    added = tokenizer.get_added_tokens_decoder()
    for _, token in sorted(added.items()):
        if token.special:
            copy.add_special_tokens([token])
        else:
            copy.add_tokens([token])
    if copy.get_added_tokens_decoder() != added:
        # Ids beyond the model's own are given out anew, and here they had gaps.
        copy = _anew(tokenizer)
    copy.encode_special_tokens = True
    return copy


def _sections(tokenizer: Tokenizer) -> tuple[Any, Any]:
    """Normalizer and pre-tokenizer for mid-text."""
    content: dict[str, Any] = {"model": {"type": "BPE", "vocab": {}, "merges": []}}
    for name in ("normalizer", "pre_tokenizer"):
        section = getattr(tokenizer, name)
        # Their state for pickle is their JSON.
        state = None if section is None else json.loads(section.__getstate__())
        content[name] = _without_prefix(state)
    empty = Tokenizer.from_str(json.dumps(content, ensure_ascii=False))
    return empty.normalizer, empty.pre_tokenizer


def _anew(tokenizer: Tokenizer) -> Tokenizer:
    content = json.loads(tokenizer.to_str())
    content["truncation"] = content["padding"] = content["post_processor"] = None
    content["normalizer"] = _without_prefix(content["normalizer"])
    content["pre_tokenizer"] = _without_prefix(content["pre_tokenizer"])
    return Tokenizer.from_str(json.dumps(content, ensure_ascii=False))


def _without_prefix(section: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A normalizer or pre-tokenizer that puts nothing before the text."""
    if section is None or section["type"] == "Prepend":
        return None
    changed = dict(section)
    if "add_prefix_space" in changed:
        changed["add_prefix_space"] = False
    if "prepend_scheme" in changed:
        changed["prepend_scheme"] = "never"
    for name in ("normalizers", "pretokenizers"):
        if name in changed:
            inner = [_without_prefix(step) for step in changed[name]]
            changed[name] = [step for step in inner if step is not None]
    return changed
