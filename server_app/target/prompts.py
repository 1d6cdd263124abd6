"""How text and chat messages become ids of a Hugging Face target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from edge_sdk.chat import Message, plain_rendering
from edge_sdk.errors import InvalidRequest, ModelFolderInvalid, NoChatTemplate

PLAIN = "plain"


class PromptText:
    """The tokenizer of a model folder. Safe for use from several threads.

    Args:
        folder: holds `tokenizer.json`, and perhaps `tokenizer_config.json` with a template.
        name: name of the model, for messages.
        chat_template: None for the model's own, `plain` for `edge_sdk.chat.plain_rendering`.

    Raises:
        ModelFolderInvalid: no tokenizer, or one that cannot be read.
        InvalidRequest: another `chat_template`.
    """

    def __init__(self, folder: Path, *, name: str, chat_template: str | None = None) -> None:
        if chat_template not in (None, PLAIN):
            raise InvalidRequest(
                f"chat template {chat_template!r} is not known; use {PLAIN!r}, or leave it out "
                "for the model's own",
                field="chat_template",
            )
        if not (folder / "tokenizer.json").is_file():
            raise ModelFolderInvalid(
                f"{folder} has no tokenizer.json; save the tokenizer in its fast form there"
            )
        try:
            # NOTE: the generic class reads tokenizer.json as it is; the class named in
            # tokenizer_config.json may rebuild parts of it.
            self._reader: Any = PreTrainedTokenizerFast.from_pretrained(
                folder, local_files_only=True
            )
        except Exception as error:  # the tokenizers package raises bare Exception
            raise ModelFolderInvalid(
                f"the tokenizer in {folder} cannot be read: {str(error)[:300]}"
            ) from error
        self._name = name
        self._plain = chat_template == PLAIN
        self._tokenizer: Tokenizer = self._reader.backend_tokenizer
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._prefix = self._find_prefix(folder)

    @property
    def prefix(self) -> tuple[int, ...]:
        """Ids that begin every text: the beginning token, or nothing."""
        return self._prefix

    @property
    def has_chat_template(self) -> bool:
        """Whether `render` works."""
        return self._plain or bool(self._reader.chat_template)

    def encode(self, text: str) -> list[int]:
        """Ids of a plain prompt; the beginning token comes first, once, if the model wants one."""
        ids = self._ids(text)
        prefix = list(self._prefix)
        return ids if prefix and ids[: len(prefix)] == prefix else prefix + ids

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a chat up to where the assistant speaks.

        Raises:
            NoChatTemplate: the model has none and no plain rendering was configured.
            InvalidRequest: the template refuses these messages.
        """
        if self._plain:
            return self.encode(plain_rendering(messages))
        if not self._reader.chat_template:
            raise NoChatTemplate(
                f"{self._name} has no chat template; send a plain prompt, or start the server "
                f"with --chat-template {PLAIN}, which writes 'Role: content' paragraphs",
                field="messages",
            )
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            text = self._reader.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=True
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise InvalidRequest(
                f"the chat template of {self._name} refuses these messages: {error}",
                field="messages",
            ) from error
        return self._ids(text)

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _find_prefix(self, folder: Path) -> tuple[int, ...]:
        encoding = self._tokenizer.encode("a", add_special_tokens=True)
        prefix = []
        for token_id, special in zip(encoding.ids, encoding.special_tokens_mask, strict=True):
            if not special:
                break
            prefix.append(token_id)
        begin = self._reader.bos_token_id
        if not prefix and begin is not None and _adds_begin(folder):
            prefix = [begin]
        return tuple(prefix)


def _adds_begin(folder: Path) -> bool:
    """Whether `tokenizer_config.json` asks for a beginning token; older checkpoints say so
    only there and not in `tokenizer.json`."""
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("add_bos_token") is True
