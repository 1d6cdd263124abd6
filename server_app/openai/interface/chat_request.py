"""The body of `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from edge_sdk.chat import Message
from edge_sdk.wire import Prompt
from edge_sdk.wire.limits import MAX_MESSAGES
from server_app.openai.interface.text_request import TextRequest, ill_typed
from server_app.openai.interface.unsupported import CHAT, TURN, supported


def _joined(value: object) -> str:
    """Text parts are one text; nothing is put between them."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ill_typed(value, "a string or a list of text parts")
    texts = []
    for part in value:
        if not isinstance(part, dict) or part.get("type") != "text" or len(part) != 2:
            raise ill_typed(part, '{"type": "text", "text": "..."}', "a part")
        text = part.get("text")
        if not isinstance(text, str):
            raise ill_typed(text, "a string", "the text of a part")
        texts.append(text)
    return "".join(texts)


class Turn(BaseModel):
    """One message of a chat."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_joined)]


class ChatRequest(TextRequest):
    """The assistant's next turn in a chat."""

    # As much as the context leaves, up to this.
    default_max_tokens: ClassVar[int] = 4096
    prompt_field: ClassVar[str] = "messages"

    messages: list[Turn] = Field(min_length=1, max_length=MAX_MESSAGES)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        fields = supported(data, CHAT)
        turns = fields.get("messages")
        if isinstance(turns, list) and len(turns) <= MAX_MESSAGES:
            fields["messages"] = [
                supported(turn, TURN, f"messages[{index}].") if isinstance(turn, dict) else turn
                for index, turn in enumerate(turns)
            ]
        return super().read(fields)

    @property
    def prompts(self) -> Sequence[Prompt]:
        turns = tuple(
            Message("system" if turn.role == "developer" else turn.role, turn.content)
            for turn in self.messages
        )
        return (Prompt(messages=turns),)
