"""OpenAI's routes on the device (docs/gateway.md)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from edge_sdk.arguments import shown
from edge_sdk.errors import NotFound
from server_app.gateway.access import let_in
from server_app.gateway.drafted_texts import DraftedTexts
from server_app.gateway.pool import Pool
from server_app.openai.interface.answering import answered
from server_app.openai.interface.body import read_object
from server_app.openai.interface.chat_request import ChatRequest
from server_app.openai.interface.completion_request import CompletionRequest
from server_app.openai.interface.model_names import ModelNames
from server_app.openai.interface.problems import OpenAIRoute
from server_app.openai.interface.replies import ChatReplies, CompletionReplies, Replies
from server_app.openai.interface.text_request import TextRequest

router = APIRouter(route_class=OpenAIRoute, dependencies=[Depends(let_in)])
open_router = APIRouter()


@router.post("/v1/completions", summary="Texts that go on from prompts")
async def completions(request: Request) -> Response:
    asked = CompletionRequest.read(await read_object(request))
    return await _answered(request, asked, CompletionReplies)


@router.post("/v1/chat/completions", summary="The next turn of a chat")
async def chat_completions(request: Request) -> Response:
    asked = ChatRequest.read(await read_object(request))
    return await _answered(request, asked, ChatReplies)


@router.get("/v1/models", summary="The server's target")
async def models(request: Request) -> dict[str, Any]:
    names = await _names(request)
    return {"object": "list", "data": [_model(name, names) for name in names]}


@router.get("/v1/models/{name:path}", summary="One name of the target")
async def model(request: Request, name: str) -> dict[str, Any]:
    names = await _names(request)
    _require(name, names)
    return _model(name, names)


@open_router.get("/health", summary="The gateway is up; says nothing of the server")
async def health(request: Request) -> dict[str, Any]:
    pool: Pool = request.app.state.pool
    return {
        "status": "ok",
        "drafts": pool.size,
        "writing": pool.writing,
        "requests": pool.requests,
    }


async def _answered(request: Request, asked: TextRequest, kind: type[Replies]) -> Response:
    state = request.app.state
    pool: Pool = state.pool
    _require(asked.model, await _names(request))
    card = await pool.card()
    texts = DraftedTexts(pool, asked, context=card.context, method=state.method)
    replies = kind(card.model, card.fingerprint)
    return await answered(request, asked, texts, replies)


async def _names(request: Request) -> ModelNames:
    state = request.app.state
    card = await state.pool.card()
    return ModelNames(card.model, state.aliases, created=state.created)


def _require(name: str, names: ModelNames) -> None:
    if name not in names:
        raise NotFound(
            f"there is no model {shown(name)} here; this gateway has {', '.join(names)}, and "
            f"further names with --alias",
            field="model",
        )


def _model(name: str, names: ModelNames) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": names.created, "owned_by": "cosd"}
