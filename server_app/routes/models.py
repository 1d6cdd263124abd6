"""What this server serves: the target, its byte table, health."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from edge_sdk.errors import NotFound
from edge_sdk.wire import PROTOCOL_VERSION, limits
from server_app.auth import owner_of
from server_app.host import Host

router = APIRouter()
Owner = Annotated[str, Depends(owner_of)]

# The engine thread goes round at least once a second when idle; a pass may take long.
_STALLED_SECONDS = 120.0


class ModelCard(BaseModel):
    """A target as clients need to know it."""

    name: str
    vocabulary_fingerprint: str
    vocabulary_size: int
    context: int
    chat: bool
    dtype: str
    device: str


class ServerCard(BaseModel):
    """What a client asks first."""

    protocol: int
    methods: list[str]
    max_draft: int
    window: int
    models: list[ModelCard]


class Health(BaseModel):
    status: str
    detail: str


@router.get("/v1/models", summary="The target, the methods and the limits")
async def models(owner: Owner, request: Request) -> ServerCard:
    host: Host = request.app.state.host
    target = host.target
    card = ModelCard(
        name=target.name,
        vocabulary_fingerprint=target.vocabulary.fingerprint,
        vocabulary_size=len(target.vocabulary),
        context=target.context,
        chat=target.has_chat_template,
        dtype=str(target.dtype).removeprefix("torch."),
        device=str(target.device),
    )
    return ServerCard(
        protocol=PROTOCOL_VERSION,
        methods=list(host.methods),
        max_draft=limits.MAX_DRAFT,
        window=limits.MAX_WINDOW,
        models=[card],
    )


@router.get(
    "/v1/vocabularies/{fingerprint}",
    summary="Byte table of the target, compressed",
    response_class=Response,
)
async def vocabulary(owner: Owner, request: Request, fingerprint: str) -> Response:
    host: Host = request.app.state.host
    if fingerprint != host.target.vocabulary.fingerprint:
        raise NotFound("this server has no vocabulary of that fingerprint; ask /v1/models")
    table: bytes | None = request.app.state.byte_table
    if table is None:
        table = await run_in_threadpool(host.target.vocabulary.to_bytes)
        request.app.state.byte_table = table
    return Response(
        table,
        media_type="application/octet-stream",
        headers={"cache-control": "private, max-age=31536000, immutable"},
    )


@router.get("/health", summary="Whether the process works", responses={503: {"model": Health}})
async def health(request: Request) -> Response:
    host: Host = request.app.state.host
    if not host.engine.alive:
        return _health(503, "dead", "the engine thread has ended")
    if host.engine.heartbeat_age > _STALLED_SECONDS:
        return _health(503, "stalled", f"no step for {host.engine.heartbeat_age:.0f} s")
    return _health(200, "ok", "the engine is running")


@router.get("/ready", summary="Whether requests are welcome", responses={503: {"model": Health}})
async def ready(request: Request) -> Response:
    host: Host = request.app.state.host
    if host.draining:
        return _health(503, "draining", "the server is going down")
    if not host.engine.alive:
        return _health(503, "dead", "the engine thread has ended")
    return _health(200, "ready", "the model is loaded and warm")


def _health(status: int, name: str, detail: str) -> JSONResponse:
    return JSONResponse(Health(status=name, detail=detail).model_dump(), status_code=status)
