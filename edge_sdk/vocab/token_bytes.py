"""How a tokenizer spells bytes in its tokens, read from the sections of `tokenizer.json`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edge_sdk.errors import TokenizerUnsupported

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE_SIGN = "\u2581"
_MAX_DEPTH = 16


def byte_level_alphabet() -> dict[str, int]:
    """Byte of each character of GPT-2's byte-level alphabet: printable Latin-1 stands for
    itself, the other 68 bytes for U+0100 onwards (openai/gpt-2, encoder.py)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + place): byte for place, byte in enumerate(others)}


_ALPHABET = byte_level_alphabet()


@dataclass(frozen=True, slots=True)
class ByteLevel:
    """Every character of a token is one byte."""

    def spell(self, token: str) -> bytes:
        """Bytes of a token. A token with a character outside the alphabet is its own text,
        which is also how `tokenizers` decodes it."""
        try:
            return bytes([_ALPHABET[character] for character in token])
        except KeyError:
            return token.encode("utf-8")

    def fallback(self, token: str) -> bytes | None:
        """None: byte-level vocabularies need no byte fallback."""
        return None


@dataclass(frozen=True, slots=True)
class SentencePiece:
    """Tokens are text with a sign for the space, perhaps with `<0xNN>` for single bytes.

    Attributes:
        signs: replacements from token to text, in order.
        byte_fallback: whether `<0xNN>` is a byte.
    """

    signs: tuple[tuple[str, str], ...]
    byte_fallback: bool

    def spell(self, token: str) -> bytes:
        """Bytes of a token of text."""
        for sign, text in self.signs:
            token = token.replace(sign, text)
        return token.encode("utf-8")

    def fallback(self, token: str) -> bytes | None:
        """The byte of a byte-fallback token, None for any other."""
        found = _BYTE_FALLBACK.fullmatch(token) if self.byte_fallback else None
        return bytes.fromhex(found[1]) if found else None


Spelling = ByteLevel | SentencePiece


def spelling_of(tokenizer: Mapping[str, Any], where: str) -> Spelling:
    """The spelling that a `tokenizer.json` declares.

    Args:
        where: the file, for messages.

    Raises:
        TokenizerUnsupported: its tokens do not stand for bytes.
    """
    model = tokenizer["model"]
    kind = model.get("type")
    if kind not in ("BPE", "Unigram"):
        raise TokenizerUnsupported(
            f"{where}: a {kind} tokenizer's tokens do not stand for bytes (words lose their "
            "spaces or case); only BPE and Unigram models can be used"
        )
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise TokenizerUnsupported(
                f"{where}: tokens marked by {name} {model[name]!r} do not stand for bytes; only "
                "byte-level and SentencePiece-style tokenizers can be used"
            )
    steps = {
        name: list(_flatten(tokenizer.get(name), f"{where}: {name}"))
        for name in ("normalizer", "pre_tokenizer", "decoder")
    }
    if any(step.get("type") == "ByteLevel" for found in steps.values() for step in found):
        return ByteLevel()
    signs = tuple(_signs(steps))
    if not signs:
        raise TokenizerUnsupported(
            f"{where}: neither a byte-level alphabet nor a space sign is declared, so the bytes "
            "of its tokens are unknown; export the tokenizer with its decoder"
        )
    falls_back = bool(model.get("byte_fallback")) or any(
        step.get("type") == "ByteFallback" for step in steps["decoder"]
    )
    return SentencePiece(signs, falls_back)


def _flatten(section: Any, where: str, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    if not isinstance(section, Mapping):
        return
    if depth > _MAX_DEPTH:
        raise TokenizerUnsupported(
            f"{where} is nested deeper than {_MAX_DEPTH} sequences; write it flat"
        )
    for name in ("normalizers", "pretokenizers", "decoders"):
        if isinstance(section.get(name), list):
            for inner in section[name]:
                yield from _flatten(inner, where, depth + 1)
            return
    yield section


def _signs(steps: Mapping[str, list[Mapping[str, Any]]]) -> Iterator[tuple[str, str]]:
    """Replacements from token to text: the decoder's, else the inverse of what comes before."""
    found = False
    for step in steps["decoder"]:
        if step.get("type") == "Metaspace":
            found = True
            yield _space_sign(step), " "
        elif step.get("type") == "Replace":
            pattern = step.get("pattern")
            sign = pattern.get("String") if isinstance(pattern, Mapping) else None
            if isinstance(sign, str) and sign and isinstance(step.get("content"), str):
                found = True
                yield sign, step["content"]
    if found:
        return
    for step in steps["pre_tokenizer"]:
        if step.get("type") == "Metaspace":
            yield _space_sign(step), " "
            return
    for step in steps["normalizer"]:
        if step.get("type") == "Replace" and step.get("content") == _SPACE_SIGN:
            yield _SPACE_SIGN, " "
            return


def _space_sign(step: Mapping[str, Any]) -> str:
    sign = step.get("replacement")
    return sign if isinstance(sign, str) and sign else _SPACE_SIGN
