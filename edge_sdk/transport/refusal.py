"""A server's error in JSON as the error of the same name here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from edge_sdk.arguments import shown
from edge_sdk.errors import (
    CosdError,
    ModelError,
    PreparationError,
    ProtocolError,
    ServerAway,
    error_for_code,
)
from edge_sdk.wire.frames import Failure

# Ray's and others' proxies also say 500 of a server that is gone, and 429 of one that is full.
_OF_A_PROXY: Final = (408, 429, 500, 502, 503, 504)


def refusal(
    base_url: str, path: str, status: int, headers: Mapping[str, str], data: bytes
) -> CosdError:
    """The error that an HTTP reply stands for."""
    try:
        body = json.loads(data)["error"]
        code, message, field = str(body["code"]), body["message"], body.get("field")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        if status in _OF_A_PROXY:
            return ServerAway(
                f"{base_url} answered {status} to {path} without an error of this protocol; a "
                f"proxy answers so while the server behind it is away",
                retry_after=_seconds(headers),
            )
        return ProtocolError(
            f"{base_url} answered {status} to {path} without an error of this protocol; is it a "
            f"cosd server?"
        )
    said = Failure(
        code=code,
        message=message if isinstance(message, str) else "",
        field=None if field is None else str(field),
        retry_after=_seconds(headers),
    )
    return told(base_url, path, said)


def told(base_url: str, path: str, said: Failure) -> CosdError:
    """The error of a `Failure`, as a sentence that says whose it is."""
    cls = error_for_code(said.code)
    message = said.message
    if not message.strip():
        message = f"{base_url} refused {path} with {shown(said.code)} and does not say why"
    elif issubclass(cls, ModelError | PreparationError):
        message = f"the server at {base_url}: {message}"
    return cls(message, field=said.field, retry_after=said.retry_after)


def _seconds(headers: Mapping[str, str]) -> float | None:
    after = headers.get("retry-after") or ""
    return float(after) if after.isascii() and after.isdigit() else None
