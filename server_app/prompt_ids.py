"""From a client's prompt to ids of the target."""

from __future__ import annotations

import asyncio

from edge_sdk.errors import EmptyPrompt, PromptTooLong
from edge_sdk.wire import Prompt
from server_app.engine.admission import check_tokens
from server_app.target.model import TargetModel


async def prompt_ids(prompt: Prompt, target: TargetModel) -> list[int]:
    """Ids of a prompt; long texts are encoded outside of the event loop.

    Raises:
        EmptyPrompt: there is nothing to go on from.
        PromptTooLong: no room for a text is left in the context.
        NoChatTemplate: chat messages for a target without a template.
        InvalidRequest: an id is out of range or unused.
    """
    if prompt.ids is not None:
        check_tokens(prompt.ids, target, "prompt.ids")
        ids = list(prompt.ids)
    elif prompt.messages is not None:
        if not prompt.messages:
            raise EmptyPrompt("the chat has no messages", field="prompt.messages")
        ids = await asyncio.to_thread(target.render, prompt.messages)
    else:
        if not prompt.text:
            raise EmptyPrompt("the prompt is empty; give at least one character", field="prompt")
        ids = await asyncio.to_thread(target.encode, prompt.text)
    if not ids:
        raise EmptyPrompt("the prompt has no tokens for this target", field="prompt")
    if len(ids) >= target.context:
        raise too_long(len(ids), target, "prompt")
    return ids


def too_long(length: int, target: TargetModel, field: str) -> PromptTooLong:
    """The error for so many tokens of prompt and text."""
    return PromptTooLong(
        f"{length} tokens of prompt and text leave no room in the target's context of "
        f"{target.context}; shorten the prompt",
        field=field,
    )
