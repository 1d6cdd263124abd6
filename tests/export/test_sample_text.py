from __future__ import annotations

from itertools import chain
from pathlib import Path

from export.sample_text import sample_texts


def test_pieces_fit_the_context_and_leave_nothing_out(tiny_checkpoint: Path) -> None:
    tokenizer = tiny_checkpoint / "tokenizer.json"
    short = sample_texts(tokenizer, context=100)
    long = sample_texts(tokenizer, context=8192)
    assert max(map(len, short)) == 100
    assert max(map(len, long)) == 256
    assert list(chain.from_iterable(short)) == list(chain.from_iterable(long))
    assert sum(map(len, long)) > 1000
