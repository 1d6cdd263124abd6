"""`/v1/completions` and `/v1/chat/completions`: the target alone, for clients of OpenAI's
interface (docs/openai.md)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from edge_sdk.arguments import shown
from edge_sdk.errors import NotFound
from server_app.auth import owner_of
from server_app.host import Host
from server_app.openai.interface.answering import answered
from server_app.openai.interface.body import read_object
from server_app.openai.interface.chat_request import ChatRequest
from server_app.openai.interface.completion_request import CompletionRequest
from server_app.openai.interface.model_names import ModelNames
from server_app.openai.interface.replies import ChatReplies, CompletionReplies, Replies
from server_app.openai.interface.text_request import TextRequest
from server_app.openai.noted import NotedRoute, note
from server_app.openai.served_texts import ServedTexts

router = APIRouter(prefix="/v1", route_class=NotedRoute)
Owner = Annotated[str, Depends(owner_of)]


_AS_OPENAI = "Body and reply are OpenAI's, as far as docs/openai.md says."


@router.post(
    "/completions",
    summary="Texts that go on from prompts, for OpenAI's clients",
    description=_AS_OPENAI,
)
async def completions(owner: Owner, request: Request) -> Response:
    asked = CompletionRequest.read(await read_object(request))
    return await _answered(owner, request, asked, CompletionReplies)


@router.post(
    "/chat/completions",
    summary="The next turn of a chat, for OpenAI's clients",
    description=_AS_OPENAI,
)
async def chat_completions(owner: Owner, request: Request) -> Response:
    asked = ChatRequest.read(await read_object(request))
    return await _answered(owner, request, asked, ChatReplies)


async def _answered(
    owner: str,
    request: Request,
    asked: TextRequest,
    kind: type[Replies],
) -> Response:
    host: Host = request.app.state.host
    names: ModelNames = request.app.state.model_names
    if asked.model not in names:
        raise NotFound(
            f"there is no model {shown(asked.model)} here; this server has {', '.join(names)}",
            field="model",
        )
    texts = ServedTexts(host, owner, asked)
    replies = kind(host.target.name, host.target.vocabulary.fingerprint)
    return await answered(request, asked, texts, replies, failed=note)
