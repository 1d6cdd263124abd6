"""JSON bodies of strangers, within bounds."""

from __future__ import annotations

import re
from typing import Any, Final

from fastapi import Request
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from edge_sdk.errors import InvalidRequest, MalformedMessage, MessageTooLarge

MAX_BODY: Final = 4 * 1024 * 1024  # bytes: a million token ids of three digits, or a long chat
MAX_DEPTH: Final = 16
MAX_VALUES: Final = 16_384  # JSON values; a list of token ids counts as one

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_TOO_MANY: Final = f"the body has more than {MAX_VALUES} values, a list of token ids counted as one"


async def read_object(request: Request) -> dict[str, Any]:
    """The JSON object in a request; no more than `MAX_BODY` bytes are ever held.

    Raises:
        MessageTooLarge: a longer body.
        MalformedMessage: no JSON, or no object.
        InvalidRequest: nested too deep, or too many values.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > MAX_BODY):
        raise MessageTooLarge(
            f"a body of {declared[:18]} bytes is over the limit of {MAX_BODY}; shorten the prompt"
        )
    data = bytearray()
    try:
        async for part in request.stream():
            if len(data) + len(part) > MAX_BODY:
                raise MessageTooLarge(
                    f"the body is over the limit of {MAX_BODY} bytes; shorten the prompt"
                )
            data += part
    except ClientDisconnect as error:
        raise MalformedMessage("the body ended early") from error
    return _parsed(bytes(data))


def _parsed(data: bytes) -> dict[str, Any]:
    # Millions of empty lists would take a second to make and to throw away.
    if _openers(data) > MAX_VALUES and _openers(_STRING.sub(b"", data)) > MAX_VALUES:
        raise InvalidRequest(_TOO_MANY)
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise MalformedMessage(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedMessage("the body must be a JSON object")
    _check_size(value)
    return value


def _check_size(value: object) -> None:
    """Bound what later checks walk over, so that a refusal costs no more than a short text."""
    level, count = [value], 0
    for _ in range(MAX_DEPTH):
        count += len(level)
        if count > MAX_VALUES:
            break
        deeper: list[object] = []
        for item in level:
            if isinstance(item, dict):
                deeper += item.values()
            elif isinstance(item, list) and not set(map(type, item)) <= {int}:
                deeper += item
        if not deeper:
            return
        level = deeper
    else:
        raise InvalidRequest(f"the body is nested more than {MAX_DEPTH} levels deep")
    raise InvalidRequest(_TOO_MANY)


def _openers(data: bytes) -> int:
    """Lists, objects and keys, if no strings are in the way."""
    return data.count(b"[") + data.count(b"{") + data.count(b":")
