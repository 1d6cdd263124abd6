"""Errors as HTTP replies: JSON with code, message and field, on every route."""

from __future__ import annotations

import logging
import math

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from edge_sdk.errors import CosdError, InvalidRequest, NotFound, ServerFault

log = logging.getLogger(__name__)


def reply(error: CosdError) -> JSONResponse:
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after))
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    body = {"error": {"code": error.code, "message": error.message, "field": error.field}}
    return JSONResponse(body, status_code=error.status, headers=headers)


def install(app: FastAPI) -> None:
    """Make every error of the app a reply of this form."""

    async def known(request: Request, error: Exception) -> Response:
        assert isinstance(error, CosdError)
        return reply(error)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return reply(NotFound(f"there is nothing at {request.url.path}"))
        body = {"error": {"code": "http_error", "message": str(error.detail), "field": None}}
        return JSONResponse(body, status_code=error.status_code, headers=error.headers)

    async def validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return reply(InvalidRequest(f"{where}: {first['msg']}", field=where))

    async def unknown(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return reply(ServerFault("the server failed on this request; its log says why"))

    app.add_exception_handler(CosdError, known)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, validation)
    app.add_exception_handler(Exception, unknown)
