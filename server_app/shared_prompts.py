"""Prompts that the operator declares for everybody."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from edge_sdk.chat import Message
from edge_sdk.errors import InvalidRequest
from edge_sdk.wire import Prompt

_MOST_BYTES: Final = 8 * 1024 * 1024
_FIELD: Final = "shared_prompts"


def read_shared_prompts(path: Path | None) -> tuple[Prompt, ...]:
    """Prompts of a file: a `.json` file is a list whose items are texts or chats (lists of
    {"role", "content"}), any other file is one text.

    Raises:
        InvalidRequest: the file cannot be read or is not of that form.
    """
    if path is None:
        return ()
    try:
        file = path.expanduser()
        # A pipe or a device could have no end, or nothing to say.
        if file.exists() and not file.is_file():
            raise InvalidRequest(
                f"shared prompts cannot be read from {path}: it is no plain file", field=_FIELD
            )
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise InvalidRequest(f"{path} is over {_MOST_BYTES >> 20} MiB", field=_FIELD)
        text = data.decode()
    except (OSError, RuntimeError, UnicodeError) as error:
        raise InvalidRequest(
            f"shared prompts cannot be read from {path} ({error})", field=_FIELD
        ) from error
    if path.suffix.lower() != ".json":
        return (_checked(Prompt(text=text), path, 0),)
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path} is not JSON ({error})", field=_FIELD) from error
    if not isinstance(items, list):
        raise InvalidRequest(f"{path} must be a JSON list of texts or chats", field=_FIELD)
    return tuple(_checked(_prompt(item, path, n), path, n) for n, item in enumerate(items))


def _prompt(item: Any, path: Path, number: int) -> Prompt:
    if isinstance(item, str):
        return Prompt(text=item)
    if isinstance(item, list) and all(
        isinstance(turn, Mapping) and {"role", "content"} <= turn.keys() for turn in item
    ):
        return Prompt(messages=tuple(Message(turn["role"], turn["content"]) for turn in item))
    raise InvalidRequest(
        f"item {number} of {path} is neither a text nor a list of messages with role and content",
        field=_FIELD,
    )


def _checked(prompt: Prompt, path: Path, number: int) -> Prompt:
    if not (prompt.text or prompt.messages):
        raise InvalidRequest(f"item {number} of {path} is empty", field=_FIELD)
    return prompt
