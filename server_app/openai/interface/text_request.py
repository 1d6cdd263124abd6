"""What completions and chats have in common: how texts are to be written."""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from edge_sdk.arguments import kind, shown
from edge_sdk.errors import InvalidRequest
from edge_sdk.sampling import Sampling
from edge_sdk.vocab.stop import StopStrings
from edge_sdk.wire import Generation, Prompt
from edge_sdk.wire.limits import MAX_TOKENS
from server_app.field_words import wrong

MAX_CHOICES: Final = 8  # texts of one prompt
MAX_TEXTS: Final = 32  # texts of one request
MAX_STOPS: Final = 4


def _stops(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise ill_typed(value, "a string or a list of strings")
    return value


def _checked_stops(stops: list[str]) -> list[str]:
    if len(stops) > MAX_STOPS:
        raise ValueError(f"{len(stops)} stop strings are over the limit of {MAX_STOPS}")
    StopStrings(stops)
    return stops


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class TextRequest(BaseModel):
    """Fields of both routes. Null is the same as a field that is left out."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )
    default_max_tokens: ClassVar[int]
    prompt_field: ClassVar[str]  # what `Open.prompt` is called here

    model: str
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    stop: Annotated[list[str], BeforeValidator(_stops), AfterValidator(_checked_stops)] | None = (
        None
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    seed: int | None = Field(default=None, ge=0, lt=2**64)
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """Check the fields that are left when the unsupported ones are out.

        Raises:
            InvalidRequest: names the first field at fault.
        """
        try:
            request = cls.model_validate(data)
        except ValidationError as error:
            raise _sentence(error, cls.model_fields) from error
        if request.stream_options is not None and not request.stream:
            raise InvalidRequest(
                "stream_options needs stream true; set it or leave stream_options out",
                field="stream_options",
            )
        if request.stream_options is not None and request.stream_options.include_obfuscation:
            raise InvalidRequest(
                "stream_options.include_obfuscation is not supported here; leave it out",
                field="stream_options.include_obfuscation",
            )
        if None not in (request.max_tokens, request.max_completion_tokens) and (
            request.max_tokens != request.max_completion_tokens
        ):
            raise InvalidRequest(
                f"max_tokens is {request.max_tokens} and max_completion_tokens is "
                f"{request.max_completion_tokens}; give one of them",
                field="max_completion_tokens",
            )
        prompts = len(request.prompts)
        if prompts * request.choices > MAX_TEXTS:
            raise InvalidRequest(
                f"{prompts} prompts with {request.choices} choices each are "
                f"{prompts * request.choices} texts, over the limit of {MAX_TEXTS} a request",
                field="n" if request.choices > 1 else "prompt",
            )
        request.sampling()
        return request

    @property
    def prompts(self) -> Sequence[Prompt]:
        raise NotImplementedError

    @property
    def choices(self) -> int:
        """Texts of each prompt."""
        return self.n or 1

    @property
    def usage_at_end(self) -> bool:
        """A stream ends with the usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def sampling(self) -> Sampling:
        """Raises:
        InvalidRequest: a value is out of its range.
        """
        given = {
            name: value
            for name in ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")
            if (value := getattr(self, name)) is not None
        }
        return Sampling(**given)

    def orders(self, context: int) -> list[tuple[Prompt, Generation]]:
        """Prompt and generation of every text: the choices of a prompt one after another."""
        return [
            (prompt, generation)
            for prompt in self.prompts
            for generation in self.generations(context)
        ]

    def generations(self, context: int) -> list[Generation]:
        """How each choice of a prompt is written.

        The first has the seed that was given, so that it is the text of that seed; the others
        have seeds that follow from it. Without a seed every choice has a fresh one.
        """
        limit = self.max_tokens or self.max_completion_tokens
        return [
            Generation(
                method="autoregressive",
                sampling=self.sampling(),
                max_tokens=limit or min(self.default_max_tokens, context),
                seed=secrets.randbits(64) if self.seed is None else _derived(self.seed, choice),
            )
            for choice in range(self.choices)
        ]


def _derived(seed: int, choice: int) -> int:
    if choice == 0:
        return seed
    digest = hashlib.blake2b(
        struct.pack("<Q", choice),
        digest_size=8,
        key=struct.pack("<Q", seed),
        person=b"cosd choice",
    )
    return int.from_bytes(digest.digest(), "little")


def _sentence(error: ValidationError, fields: Mapping[str, FieldInfo]) -> InvalidRequest:
    first = error.errors(include_url=False)[0]
    field = ""
    for part in first["loc"]:
        if isinstance(part, int):
            field += f"[{part}]"
        else:
            field += f".{part}" if field else part
    if first["type"] == "extra_forbidden":
        said = f"{field[:200]}: there is no such field here; leave it out (docs/openai.md)"
    elif first["type"] == "missing":
        said = f"{field[:200]}: it is missing"
    elif first["type"] == "model_type":
        said = f"{field[:200]} is {shown(first['input'])}; it must be an object"
    else:
        said = wrong(field[:200], first, fields.get(field))
    return InvalidRequest(said, field=field[:200])


def ill_typed(value: object, wanted: str, name: str = "it") -> ValueError:
    """For validators: a value of another type, in a sentence after the field's name."""
    return ValueError(f"{name} is {shown(value)} ({kind(value)}); give {wanted}")
