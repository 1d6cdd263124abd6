"""Replies and events of both routes."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from server_app.openai.interface.delta import Delta


class Replies(ABC):
    """What one request is answered with: one object, or the events of a stream.

    Args:
        model: name of the target.
        fingerprint: of its vocabulary.
    """

    prefix: ClassVar[str]
    whole_object: ClassVar[str]
    event_object: ClassVar[str]

    def __init__(self, model: str, fingerprint: str) -> None:
        self._head = {
            "id": f"{self.prefix}-{secrets.token_hex(16)}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint[:16],
        }

    def whole(self, answers: Sequence[tuple[str, str]], usage: dict[str, Any]) -> dict[str, Any]:
        """The reply with every text; `answers` are texts and finish reasons."""
        choices = [
            {
                "index": index,
                **self._answer(text),
                "logprobs": None,
                "finish_reason": reason,
            }
            for index, (text, reason) in enumerate(answers)
        ]
        return {**self._head, "object": self.whole_object, "choices": choices, "usage": usage}

    def begin(self, index: int) -> dict[str, Any] | None:
        """The event before the first text of a choice, if there is one."""
        return None

    def event(self, delta: Delta) -> dict[str, Any]:
        """The event of some more text."""
        return self._event(delta.index, self._more(delta.text), delta.finish_reason)

    def last(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The event that reports the usage."""
        return {**self._head, "object": self.event_object, "choices": [], "usage": usage}

    def _event(self, index: int, more: dict[str, Any], reason: str | None) -> dict[str, Any]:
        choice = {"index": index, **more, "logprobs": None, "finish_reason": reason}
        return {**self._head, "object": self.event_object, "choices": [choice]}

    @abstractmethod
    def _answer(self, text: str) -> dict[str, Any]:
        """A whole text in a choice."""

    @abstractmethod
    def _more(self, text: str) -> dict[str, Any]:
        """Some more text in a choice."""


class CompletionReplies(Replies):
    prefix = "cmpl"
    whole_object = event_object = "text_completion"

    def _answer(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def _more(self, text: str) -> dict[str, Any]:
        return {"text": text}


class ChatReplies(Replies):
    prefix = "chatcmpl"
    whole_object = "chat.completion"
    event_object = "chat.completion.chunk"

    def begin(self, index: int) -> dict[str, Any]:
        return self._event(index, {"delta": {"role": "assistant", "content": ""}}, None)

    def _answer(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def _more(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}}
