"""Whether the server works, and whether it wants requests. Neither wants a key."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from server_app.host import Host
from server_app.readiness import Health, health_reply
from server_app.settings import Settings

router = APIRouter()


@router.get("/health", summary="Whether the engine goes round", responses={503: {"model": Health}})
async def health(request: Request) -> Response:
    engine = request.app.state.host.engine
    settings: Settings = request.app.state.settings
    if not engine.alive:
        return health_reply(503, "dead", "the engine thread has ended")
    # An idle engine goes round every second, so an old heartbeat means a pass that hangs.
    if engine.heartbeat_age > settings.stall_seconds:
        return health_reply(503, "stalled", f"no step for {engine.heartbeat_age:.0f} s")
    return health_reply(200, "ok", "the engine is running")


@router.get(
    "/ready", summary="Whether new sessions are welcome", responses={503: {"model": Health}}
)
async def ready(request: Request) -> Response:
    host: Host = request.app.state.host
    if host.draining or host.closing:
        return health_reply(503, "draining", f"going down; {host.sessions} sessions are still held")
    if not host.engine.alive:
        return health_reply(503, "dead", "the engine thread has ended")
    return health_reply(200, "ready", "the model is loaded")
