"""Errors as HTTP replies: JSON with code, message and field, on every route, and beside them what
OpenAI's clients look for, who ask `/v1/models` and what is not here."""

from __future__ import annotations

import math
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from edge_sdk.errors import CosdError, InvalidRequest, NotFound
from server_app.observability.facts import current_facts
from server_app.openai.interface.problems import type_of

HTTP_ERROR: Final = "http_error"


def reply(error: CosdError) -> JSONResponse:
    """An error as a reply."""
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after))
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    body = _body(error.status, error.code, error.message, error.field)
    return JSONResponse(body, status_code=error.status, headers=headers)


def _body(status: int, code: str, message: str, field: str | None) -> dict[str, Any]:
    own = {"code": code, "message": message, "field": field}
    return {"error": {**own, "type": type_of(status), "param": field}}


def install(app: FastAPI) -> None:
    """Make every error of the app a reply of this form, and note its code. Exceptions that
    nothing handles are answered by `RequestLog`."""

    def noted(error: CosdError) -> Response:
        current_facts().fail(error.code)
        return reply(error)

    async def known(request: Request, error: Exception) -> Response:
        assert isinstance(error, CosdError)
        return noted(error)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return noted(NotFound(f"there is nothing at {request.url.path}"))
        current_facts().fail(HTTP_ERROR)
        body = _body(error.status_code, HTTP_ERROR, str(error.detail), None)
        return JSONResponse(body, status_code=error.status_code, headers=error.headers)

    async def validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return noted(InvalidRequest(f"{where}: {first['msg']}", field=where))

    app.add_exception_handler(CosdError, known)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, validation)
