"""Reading and writing msgpack bodies within their limits."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from edge_sdk.errors import MalformedMessage, MessageTooLarge
from edge_sdk.wire import decode, encode

MEDIA_TYPE = "application/msgpack"

M = TypeVar("M")


async def read(request: Request, cls: type[M], limit: int) -> tuple[M, bytes]:
    """The message in a request and its bytes; no more than `limit` bytes are ever held.

    Raises:
        MessageTooLarge, MalformedMessage, InvalidRequest: see `edge_sdk.wire.decode`.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > limit):
        raise MessageTooLarge(
            f"{cls.__name__}: a body of {declared[:18]} bytes is over the limit of {limit}"
        )
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise MessageTooLarge(
                    f"{cls.__name__}: the body is over the limit of {limit} bytes"
                )
            parts.append(part)
    except ClientDisconnect as error:
        raise MalformedMessage(f"{cls.__name__}: the body ended early") from error
    body = b"".join(parts)
    return decode(cls, body, limit=limit), body


def write(message: Any, headers: dict[str, str] | None = None) -> Response:
    data = message if isinstance(message, bytes) else encode(message)
    return Response(data, media_type=MEDIA_TYPE, headers=headers)
