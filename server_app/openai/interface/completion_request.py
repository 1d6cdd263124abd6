"""The body of `/v1/completions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator

from edge_sdk.wire import Prompt
from server_app.openai.interface.text_request import TextRequest, ill_typed
from server_app.openai.interface.unsupported import COMPLETION, supported

_FORMS = "a string, a list of token ids, or a list of either"


def _prompts(value: object) -> tuple[Prompt, ...]:
    if isinstance(value, str):
        return (Prompt(text=value),)
    if not isinstance(value, list):
        raise ill_typed(value, _FORMS)
    if not value:
        raise ValueError("it is an empty list; give at least one token id or text")
    if isinstance(value[0], int):
        return (_ids(value),)
    return tuple(
        Prompt(text=item) if isinstance(item, str) else _ids(item, f"item {index}")
        for index, item in enumerate(value)
    )


def _ids(value: object, name: str = "it") -> Prompt:
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise ill_typed(value, _FORMS, name)
    return Prompt(ids=tuple(value))


class CompletionRequest(TextRequest):
    """Texts that go on from prompts."""

    default_max_tokens: ClassVar[int] = 16
    prompt_field: ClassVar[str] = "prompt"

    prompt: Annotated[Any, BeforeValidator(_prompts)]

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        return super().read(supported(data, COMPLETION))

    @property
    def prompts(self) -> Sequence[Prompt]:
        found: tuple[Prompt, ...] = self.prompt
        return found
