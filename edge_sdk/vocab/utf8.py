"""Bytes of tokens -> text, as they come."""

from __future__ import annotations

import codecs


class Utf8Decoder:
    """Incremental UTF-8 decoder.

    Never gives half a character: bytes that may still become one are held back. Bytes that
    never can become U+FFFD, cut the way Python and WHATWG do. However the bytes are cut into
    pieces, the text is that of `data.decode("utf-8", "replace")`.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._characters = 0

    @property
    def pending(self) -> int:
        """Bytes held back, 0 to 3."""
        return len(self._decoder.getstate()[0])

    @property
    def characters(self) -> int:
        """Characters given so far. A token whose end leaves this at c has its text before
        character c, which is how a cut in the text becomes a number of tokens."""
        return self._characters

    def feed(self, data: bytes) -> str:
        """Text that `data` completes."""
        return self._count(self._decoder.decode(data))

    def flush(self) -> str:
        """Text of the bytes held back, which will not be completed; the decoder starts anew."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return self._count(text)

    def _count(self, text: str) -> str:
        self._characters += len(text)
        return text
