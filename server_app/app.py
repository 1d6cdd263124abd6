"""The FastAPI application over a loaded target."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from fastapi import FastAPI

from server_app import problems
from server_app.auth import Keyring
from server_app.engine.engine import Engine
from server_app.engine.observer import Observer
from server_app.engine.scheduler import Policy
from server_app.host import Host, HostLimits
from server_app.methods.registry import SERVER_HALVES
from server_app.observability.host_state import HostState
from server_app.observability.metrics import Metrics
from server_app.observability.observers import Observers
from server_app.observability.requests import RequestLog
from server_app.openai import routes as openai_routes
from server_app.openai.interface.model_names import ModelNames
from server_app.quotas import KeyLimits
from server_app.routes import drafts, health, metrics, models, sessions, stream
from server_app.settings import Settings
from server_app.shared_prompts import read_shared_prompts
from server_app.target.model import TargetModel

if TYPE_CHECKING:
    from server_app.observability.tracing import Tracing

_SWEEP_SECONDS = 10.0


def create_app(target: TargetModel, settings: Settings | None = None) -> FastAPI:
    """An app that verifies with `target`. Its lifespan starts and stops the engine.

    Raises:
        InvalidRequest: a setting asks for a package that is not installed, or the shared
            prompts cannot be read.
        ModelFolderInvalid: a folder of the setting `drafts` is no exported draft.
    """
    settings = settings or Settings()
    shared = read_shared_prompts(settings.shared_prompts)
    counted = Metrics(SERVER_HALVES)
    tracing = _tracing() if settings.telemetry else None
    observer: Observer = counted if tracing is None else Observers(counted, tracing)
    engine = Engine(target, _policy(settings, target.device.type), observer=observer)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        sweeper = asyncio.create_task(_sweep(app.state.host))
        try:
            await app.state.host.declare(shared)
            yield
        finally:
            app.state.host.draining = app.state.host.closing = True
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
        # Its own spans and records would hold session ids and what exceptions quote.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.settings = settings
    app.state.host = Host(engine, _limits(settings))
    app.state.keyring = Keyring(settings.api_keys)
    app.state.metrics = counted
    app.state.metrics_keyring = _metrics_keyring(settings)
    app.state.byte_table = None
    app.state.drafts = drafts.DraftFolders(settings.drafts)
    app.state.sticky = False
    app.state.model_names = ModelNames(target.name, settings.model_aliases)
    app.state.observer = observer
    counted.registry.register(HostState(app.state.host))
    problems.install(app)
    app.add_middleware(RequestLog, metrics=counted, tracing=tracing)
    app.include_router(health.router)
    app.include_router(metrics.router)
    app.include_router(models.router)
    app.include_router(drafts.router)
    app.include_router(sessions.router)
    app.include_router(stream.router)
    app.include_router(openai_routes.router)
    return app


def _policy(settings: Settings, device: str) -> Policy:
    return Policy(
        batch_tokens=settings.batch_tokens(device),
        prefill_chunk=settings.prefill_chunk,
        wait=settings.batch_wait_ms / 1000,
        queue=settings.queue_limit,
        queue_seconds=settings.queue_seconds,
    )


def _limits(settings: Settings) -> HostLimits:
    """Without keys all clients are one owner, so that only the server's own limits hold."""
    key = KeyLimits(
        sessions=settings.max_sessions_per_key,
        tokens_in_flight=settings.max_tokens_in_flight_per_key,
        requests_per_second=settings.requests_per_second_per_key,
    )
    return HostLimits(
        sessions=settings.max_sessions,
        session_ttl=settings.session_ttl,
        key=key if settings.api_keys else KeyLimits(),
    )


async def _sweep(host: Host) -> None:
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        host.sweep()


def _tracing() -> Tracing:
    # Imported only where it is asked for: it needs packages of an extra.
    from server_app.observability.tracing import Tracing

    return Tracing()


def _metrics_keyring(settings: Settings) -> Keyring:
    if settings.metrics_open:
        return Keyring(())
    if settings.metrics_key is None:
        return Keyring(settings.api_keys)
    refusal = "/metrics wants the key COSD_METRICS_KEY of this server; an API key does not open it"
    return Keyring((settings.metrics_key,), refusal=refusal)


def _version() -> str:
    try:
        return version("edge-cosd")
    except PackageNotFoundError:
        return "0"
