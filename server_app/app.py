"""The FastAPI application over a loaded target."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI

from server_app import problems
from server_app.auth import Keyring
from server_app.engine.engine import Engine
from server_app.host import Host, HostLimits
from server_app.routes import models, sessions
from server_app.settings import Settings
from server_app.target.model import TargetModel

_SWEEP_SECONDS = 10.0


def create_app(target: TargetModel, settings: Settings | None = None) -> FastAPI:
    """An app that verifies with `target`. Its lifespan starts and stops the engine."""
    settings = settings or Settings()
    engine = Engine(target)
    limits = HostLimits(sessions=settings.max_sessions, session_ttl=settings.session_ttl)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        sweeper = asyncio.create_task(_sweep(app.state.host))
        try:
            yield
        finally:
            app.state.host.draining = True
            sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeper
            await asyncio.to_thread(engine.stop)

    app = FastAPI(
        title="cosd server",
        description="Verifies drafts of small models against one target. Round messages are "
        "msgpack and are described in docs/wire.md; what is JSON is described here.",
        version=_version(),
        lifespan=lifespan,
    )
    app.state.host = Host(engine, limits)
    app.state.keyring = Keyring(settings.api_keys)
    app.state.byte_table = None
    problems.install(app)
    app.include_router(models.router)
    app.include_router(sessions.router)
    return app


async def _sweep(host: Host) -> None:
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        host.sweep()


def _version() -> str:
    try:
        return version("edge-cosd")
    except PackageNotFoundError:
        return "0"
