"""One copy of the server in a cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import TypedDict

from fastapi import FastAPI
from prometheus_client import generate_latest
from ray import serve

from server_app.cluster.routes import add_routes
from server_app.command import load_app, source_of
from server_app.drain import QUIET_SECONDS, drain
from server_app.observability import logs
from server_app.settings import Settings

log = logging.getLogger("server_app")


class ReplicaState(TypedDict):
    """Attributes:
    replica: its name in the cluster.
    machine: the host it runs on.
    process: its process id there.
    sessions: sessions held.
    active: sessions with a request in progress, or used in the last few seconds.
    draining: it opens no new session.
    """

    replica: str
    machine: str
    process: int
    sessions: int
    active: int
    draining: bool


class Replica:
    """Loads the model before the cluster sends it requests, and serves the app of `cosd serve`.

    Its app asks clients for the header that keeps a session here (`sticky`).

    Args:
        settings: of the server. The address, the port and the connections are the proxy's.

    Raises:
        CosdError: the model cannot be loaded; see `load_app`.
    """

    def __init__(self, settings: Settings) -> None:
        logs.configure(settings.log_level, settings.log_format)
        if settings.telemetry:
            from server_app.observability.tracing import export_spans

            export_spans()
        self._settings = settings
        self._draining: asyncio.Task[None] | None = None
        self.name: str = serve.get_replica_context().replica_id.unique_id
        self._app = load_app(settings, source_of(settings.target), lambda doing: log.info(doing))
        self._app.state.sticky = True
        add_routes(self._app, self.name)
        log.info("replica %s is loaded", self.name)

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Asked by Ray once the model is loaded."""
        return self._app

    def check_health(self) -> None:
        """Asked by Ray every few seconds; a replica that fails three times is replaced.

        Raises:
            RuntimeError: the engine ended, or a pass hangs.
        """
        host = self._app.state.host
        engine = host.engine
        # On its way out it ends its engine itself.
        if not engine.alive and not host.closing:
            raise RuntimeError("the engine thread has ended")
        if engine.heartbeat_age > self._settings.stall_seconds:
            raise RuntimeError(f"the engine made no step for {engine.heartbeat_age:.0f} s")

    async def drain(self, seconds: float) -> None:
        """Open no new session, serve the open ones for at most `seconds`, then finish what is
        under way."""
        if self._draining is None:
            self._draining = asyncio.ensure_future(drain(self._app.state.host, seconds))
        await asyncio.shield(self._draining)

    async def state(self) -> ReplicaState:
        """What it does right now."""
        host = self._app.state.host
        return ReplicaState(
            replica=self.name,
            machine=socket.gethostname(),
            process=os.getpid(),
            sessions=host.sessions,
            active=host.active_sessions(QUIET_SECONDS),
            draining=host.draining,
        )

    async def figures(self) -> tuple[str, str]:
        """Its name and its page for Prometheus."""
        return self.name, generate_latest(self._app.state.metrics.registry).decode()
