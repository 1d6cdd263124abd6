"""The application of a gateway."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from edge_sdk.errors import CosdError, NotFound
from server_app.gateway.access import Access
from server_app.gateway.drafted_text import AUTO
from server_app.gateway.pool import Pool
from server_app.gateway.routes import open_router, router
from server_app.openai.interface.problems import reply


def create_app(
    pool: Pool, *, access: Access | None = None, aliases: Sequence[str] = (), method: str = AUTO
) -> FastAPI:
    """An app that writes with `pool`, which it closes when it ends.

    Args:
        access: who may use it; by default every program of this machine.
        aliases: further names of the target, for programs that insist on one.
        method: decoding method of every text; "auto" chooses by request.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await pool.aclose()

    app = FastAPI(
        title="cosd gateway",
        description="OpenAI's interface on the device, see docs/gateway.md.",
        lifespan=lifespan,
        openapi_url=None,
    )
    app.state.pool = pool
    app.state.access = access or Access()
    app.state.aliases = tuple(aliases)
    app.state.method = method
    app.state.created = int(time.time())
    app.add_exception_handler(HTTPException, _http)
    app.include_router(router)
    app.include_router(open_router)
    return app


async def _http(request: Request, error: Exception) -> Response:
    """What no route answered, in the form of the routes."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return reply(NotFound(f"there is nothing at {request.url.path[:200]}"))
    refused = reply(CosdError(str(error.detail)))
    refused.status_code = error.status_code
    return refused
