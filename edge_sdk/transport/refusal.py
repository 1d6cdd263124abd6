"""A server's error in JSON as the error of the same name here."""

from __future__ import annotations

import json
from collections.abc import Mapping

from edge_sdk.arguments import shown
from edge_sdk.errors import (
    CosdError,
    ModelError,
    PreparationError,
    ProtocolError,
    error_for_code,
)
from edge_sdk.wire.frames import Failure


def refusal(
    base_url: str, path: str, status: int, headers: Mapping[str, str], data: bytes
) -> CosdError:
    """The error that an HTTP reply stands for."""
    try:
        body = json.loads(data)["error"]
        code, message, field = str(body["code"]), body["message"], body.get("field")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ProtocolError(
            f"{base_url} answered {status} to {path} without an error of this protocol; is it a "
            f"cosd server?"
        )
    after = headers.get("retry-after") or ""
    said = Failure(
        code=code,
        message=message if isinstance(message, str) else "",
        field=None if field is None else str(field),
        retry_after=float(after) if after.isascii() and after.isdigit() else None,
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
