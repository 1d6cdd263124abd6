"""A text that shows an export what a model will read and write."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from edge_sdk.draft.tokenizer_text import load_tokenizer

# Attention scores and activations of one pass stay small.
_MOST_TOKENS = 256


def sample_texts(tokenizer: Path, *, context: int) -> list[list[int]]:
    """Pieces of `sample_text.txt` (prose, dialogue, numbers, code, letters, some languages) in
    the ids of a tokenizer, none longer than 256 or the context.

    Raises:
        TokenizerUnsupported: the installed tokenizers cannot load it.
    """
    text = files("export").joinpath("sample_text.txt").read_text(encoding="utf-8")
    ids = load_tokenizer(tokenizer).encode(text, add_special_tokens=False).ids
    size = min(_MOST_TOKENS, context)
    return [list(ids[start : start + size]) for start in range(0, len(ids), size)]
