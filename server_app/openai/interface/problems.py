"""Errors as OpenAI's clients read them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute

from edge_sdk.errors import (
    CosdError,
    InvalidRequest,
    MessageTooLarge,
    NotFound,
    PromptTooLong,
    RateLimited,
    ServerFault,
    ServerUnavailable,
    SessionError,
    Unauthorized,
)

log = logging.getLogger(__name__)

PATHS: Final = frozenset({"/v1/completions", "/v1/chat/completions"})
CLIENT_GONE: Final = 499  # nobody reads it; it is for logs
# Where OpenAI's clients look for a code of their own.
_CODES: Final[dict[type[CosdError], str]] = {
    Unauthorized: "invalid_api_key",
    NotFound: "model_not_found",
    PromptTooLong: "context_length_exceeded",
    RateLimited: "rate_limit_exceeded",
}


def status_of(error: CosdError) -> int:
    """The HTTP status by which these clients choose their exception class and whether to try
    again."""
    if isinstance(error, InvalidRequest) and not isinstance(error, MessageTooLarge):
        return 400
    # A session that is lost again and again is the server's trouble, not the client's.
    if isinstance(error, SessionError):
        return ServerUnavailable.status
    return error.status


def type_of(status: int) -> str:
    """OpenAI's word for the kind of an error with that HTTP status."""
    if status == RateLimited.status:
        return "rate_limit_error"
    if status == Unauthorized.status:
        return "authentication_error"
    return "invalid_request_error" if status < 500 else "server_error"


def body_of(error: CosdError) -> dict[str, Any]:
    """The error object; also an event of a stream that has begun."""
    return {
        "error": {
            "message": error.message,
            "type": type_of(status_of(error)),
            "param": error.field,
            "code": next((c for cls, c in _CODES.items() if isinstance(error, cls)), error.code),
        }
    }


def reply(error: CosdError) -> JSONResponse:
    """An error as a reply."""
    status = status_of(error)
    headers = {}
    if status in (RateLimited.status, ServerUnavailable.status):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after or 1.0)))
    if status == Unauthorized.status:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(body_of(error), status_code=status, headers=headers)


class OpenAIRoute(APIRoute):
    """A route whose errors have OpenAI's form; those of its dependencies too."""

    def failed(self, error: CosdError) -> None:
        """Told every error that is replied; for what a server notes of it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await inner(request)
            except CosdError as error:
                told = error
            except Exception:
                log.exception("a request failed")
                told = ServerFault("the server failed on this request; its log says why")
            self.failed(told)
            return reply(told)

        return handler
