"""Chat messages as both sides know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from edge_sdk.arguments import kind, shown
from edge_sdk.errors import InvalidRequest

Role = Literal["system", "user", "assistant"]
ROLES: tuple[str, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: str
    content: str

    def __post_init__(self) -> None:
        role: object = self.role
        if not isinstance(role, str) or role not in ROLES:
            raise InvalidRequest(
                f"chat role {shown(self.role)} is not one of {', '.join(ROLES)}", field="messages"
            )
        if not isinstance(self.content, str):
            raise InvalidRequest(
                f"the content of a chat message is {shown(self.content)} ({kind(self.content)}); "
                f"it must be a string",
                field="messages",
            )


def plain_rendering(messages: Sequence[Message]) -> str:
    """The documented rendering for a model without a chat template:
    `Role: content` paragraphs, ending in `Assistant:`."""
    turns = [f"{message.role.capitalize()}: {message.content}\n\n" for message in messages]
    return "".join([*turns, "Assistant:"])
