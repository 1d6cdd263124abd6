"""Turning text, chat messages and raw bytes into draft ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edge_sdk.chat import Message


class DraftText(Protocol):
    """The draft's own reading of a text. What it returns changes how often drafts
    are accepted, never what text comes out."""

    def prompt(self, text: str) -> list[int]:
        """Ids of a plain prompt, beginning-of-text token included if the model wants one."""
        ...

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a chat up to where the assistant is to speak, in the draft's own format
        (a plain rendering where the model has none)."""
        ...

    def tail(self, data: bytes) -> list[int]:
        """Ids of bytes in mid-text: no beginning-of-text token, no prefix space;
        bytes that are not UTF-8 become single-byte tokens, or nothing where the
        vocabulary has none."""
        ...
