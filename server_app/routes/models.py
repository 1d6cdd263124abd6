"""What this server serves: the target and its byte table."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel

from edge_sdk.errors import NotFound
from edge_sdk.wire import PROTOCOL_VERSION, limits
from server_app.auth import owner_of
from server_app.host import Host
from server_app.openai.interface.model_names import ModelNames

router = APIRouter()
Owner = Annotated[str, Depends(owner_of)]


class ModelCard(BaseModel):
    """A target as clients need to know it."""

    name: str
    aliases: list[str]
    vocabulary_fingerprint: str
    vocabulary_size: int
    context: int
    chat: bool
    dtype: str
    device: str


class ListedModel(BaseModel):
    """A name of the target as OpenAI's clients list it."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "cosd"


class ServerCard(BaseModel):
    """What a client asks first. `object` and `data` are for OpenAI's clients; `sticky` asks for
    the header `x-session-id` with every request of a session."""

    protocol: int
    methods: list[str]
    max_draft: int
    window: int
    models: list[ModelCard]
    object: Literal["list"] = "list"
    data: list[ListedModel]
    transports: list[str]
    sticky: bool


@router.get("/v1/models", summary="The target, the methods and the limits")
async def models(owner: Owner, request: Request) -> ServerCard:
    host: Host = request.app.state.host
    names: ModelNames = request.app.state.model_names
    target = host.target
    card = ModelCard(
        name=target.name,
        aliases=list(names.aliases),
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
        data=[ListedModel(id=name, created=names.created) for name in names],
        transports=["http", "websocket"],
        sticky=request.app.state.sticky,
    )


@router.get("/v1/models/{name:path}", summary="One name of the target, for OpenAI's clients")
async def model(owner: Owner, request: Request, name: str) -> ListedModel:
    names: ModelNames = request.app.state.model_names
    if name not in names:
        raise NotFound(
            f"there is no model {name[:80]!r} here; this server has {', '.join(names)}",
            field="model",
        )
    return ListedModel(id=name, created=names.created)


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
