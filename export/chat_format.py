"""The chat format of a model, measured from its template."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge_sdk.draft.manifest import ChatFormat

# Letters that templates neither trim nor escape, one content for each turn.
_SYSTEM, _USER, _ASSISTANT, _AGAIN = "qzSYSqz", "qzUSRqz", "qzASTqz", "qzAGNqz"

Render = Callable[[list[dict[str, str]], bool], str]


def read_chat_format(folder: Path) -> ChatFormat | None:
    """Measure the chat format of a Hugging Face folder; None for a model without a template,
    or with one that is no sequence of turns.

    The template is rendered for a few chats whose contents are marks, and the texts between
    the marks are the format.
    """
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not tokenizer.chat_template:
        return None

    def render(messages: list[dict[str, str]], generation: bool) -> str:
        text: str = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=generation
        )
        return text

    return measure_chat_format(render)


def measure_chat_format(render: Render) -> ChatFormat | None:
    """Measure a template given as a function of messages and `add_generation_prompt`."""
    user, assistant = _turn("user", _USER), _turn("assistant", _ASSISTANT)
    one = _pieces(render, [user])
    two = _pieces(render, [user, assistant])
    three = _pieces(render, [user, assistant, _turn("user", _AGAIN)])
    asked = _pieces(render, [user], generation=True)
    if one is None or two is None or three is None or asked is None:
        return None
    after_user, after_assistant = one[1], two[2]
    before_assistant = three[1].removeprefix(after_user)
    before_user = three[2].removeprefix(after_assistant)
    generation = asked[1].removeprefix(after_user)
    if (
        after_user + before_assistant != three[1]
        or after_assistant + before_user != three[2]
        or after_user + generation != asked[1]
        or not one[0].endswith(before_user)
    ):
        return None
    prefix = {"user": before_user, "assistant": before_assistant}
    suffix = {"user": after_user, "assistant": after_assistant}
    start = start_with_system = one[0].removesuffix(before_user)
    system = _pieces(render, [_turn("system", _SYSTEM), user])
    if system is not None and system[1].endswith(before_user):
        # Some templates start a chat without a system message with one of their own.
        start_with_system = start if system[0].startswith(start) else ""
        prefix["system"] = system[0].removeprefix(start_with_system)
        suffix["system"] = system[1].removesuffix(before_user)
    return ChatFormat(
        start=start,
        start_with_system=start_with_system,
        prefix=prefix,
        suffix=suffix,
        generation=generation,
    )


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _pieces(
    render: Render, messages: list[dict[str, str]], *, generation: bool = False
) -> list[str] | None:
    """Texts before, between and after the contents; None where a content is not rendered once."""
    from jinja2.exceptions import TemplateError

    try:
        text = render(messages, generation)
    except (TemplateError, ValueError, TypeError, KeyError):
        return None
    pieces = []
    for message in messages:
        before, mark, text = text.partition(message["content"])
        if not mark:
            return None
        pieces.append(before)
    return [*pieces, text]
