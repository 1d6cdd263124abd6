"""How a draft with a `tokenizer.json` reads text, chats and raw bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from edge_sdk.chat import Message, plain_rendering
from edge_sdk.draft.manifest import ChatFormat
from edge_sdk.errors import TokenizerUnsupported
from edge_sdk.vocab import Vocabulary
from edge_sdk.vocab.tail import TailEncoder


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`.

    Raises:
        TokenizerUnsupported: the installed tokenizers cannot load it.
    """
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing narrower
        raise TokenizerUnsupported(
            f"{path} cannot be loaded by the installed tokenizers ({error}); it may be damaged, "
            "so fetch or export the model again"
        ) from error


class TokenizerText:
    """Implements `DraftText`.

    Args:
        tokenizer: the draft's tokenizer, as read from its file.
        vocabulary: its tokens.
        prefix_ids: ids that begin every plain text; a chat format spells its own.
        chat: the draft's chat format, None for `plain_rendering`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        vocabulary: Vocabulary,
        prefix_ids: Sequence[int],
        chat: ChatFormat | None,
    ) -> None:
        self._tokenizer = tokenizer
        self._prefix = list(prefix_ids)
        self._chat = chat
        self._tail = TailEncoder(vocabulary, tokenizer)

    def prompt(self, text: str) -> list[int]:
        return [*self._prefix, *self._encode(text)]

    def chat(self, messages: Sequence[Message]) -> list[int]:
        if self._chat is None:
            return self.prompt(plain_rendering(messages))
        return self._encode(render(self._chat, messages))

    def tail(self, data: bytes) -> list[int]:
        return self._tail(data)

    def _encode(self, text: str) -> list[int]:
        # The file's own post-processor would add its beginning token as it sees fit.
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def render(chat: ChatFormat, messages: Sequence[Message]) -> str:
    """The text of a chat in a format. A role that the format does not know, such as `system`
    with many models, is joined to the next user turn."""
    opens_with_system = bool(messages) and messages[0].role == "system"
    parts = [chat.start_with_system if opens_with_system else chat.start]
    waiting: list[str] = []
    for message in messages:
        if message.role not in chat.prefix:
            waiting.append(message.content)
            continue
        content = message.content
        if message.role == "user" and waiting:
            content = "\n\n".join([*waiting, content])
            waiting = []
        parts += [chat.prefix[message.role], content, chat.suffix[message.role]]
    if waiting:
        content = "\n\n".join(waiting)
        parts += [chat.prefix["user"], content, chat.suffix["user"]]
    return "".join([*parts, chat.generation])
