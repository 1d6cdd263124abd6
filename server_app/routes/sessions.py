"""Pairs and sessions: the routes of a round. Bodies are msgpack (docs/wire.md)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response, StreamingResponse

from edge_sdk.errors import CosdError, InvalidRequest
from edge_sdk.wire import (
    Ask,
    Extend,
    Generate,
    Generated,
    Open,
    RegisterPair,
    Truncate,
    Verify,
    encode,
    limits,
)
from server_app.auth import owner_of
from server_app.host import Host
from server_app.observability.facts import current_facts
from server_app.routes import body
from server_app.routes.gone import while_connected

router = APIRouter(prefix="/v1")
Owner = Annotated[str, Depends(owner_of)]

_SESSION_ID = re.compile(r"[0-9a-f]{32}")


def checked_session_id(session_id: str) -> str:
    """Raises:
    InvalidRequest: it cannot be one.
    """
    if not _SESSION_ID.fullmatch(session_id):
        raise InvalidRequest(
            "a session id is 128 random bits as 32 lower-case hex digits", field="session_id"
        )
    return session_id


# Dependencies are coroutines, since FastAPI takes plain functions to a thread and back.
async def _host(request: Request) -> Host:
    host: Host = request.app.state.host
    return host


async def _session(session_id: str) -> str:
    return checked_session_id(session_id)


HostOf = Annotated[Host, Depends(_host)]
SessionId = Annotated[str, Depends(_session)]


@router.put("/pairs", summary="Register V_C of a draft with this target")
async def register_pair(request: Request, owner: Owner, host: HostOf) -> Response:
    message, _ = await body.read(request, RegisterPair, limits.MAX_PAIR_BODY)
    return body.write(host.register_pair(message))


@router.put("/sessions/{session_id}", summary="Open a session")
async def open_session(
    request: Request, owner: Owner, host: HostOf, session_id: SessionId
) -> Response:
    message, data = await body.read(request, Open, limits.MAX_OPEN_BODY)
    return body.write(await host.open(owner, session_id, message, data))


@router.post("/sessions/{session_id}/verify", summary="Verify a block of drafted tokens")
async def verify(request: Request, owner: Owner, host: HostOf, session_id: SessionId) -> Response:
    limit = host.round_limit(owner, session_id)
    message, data = await body.read(request, Verify, limit)
    judged = host.verify(owner, session_id, message, data)
    reply, seconds = await while_connected(request, judged)
    return body.write(reply, {"server-timing": f"verify;dur={seconds * 1000:.3f}"})


@router.post("/sessions/{session_id}/ask", summary="Ask for more to settle a rejection with")
async def ask(request: Request, owner: Owner, host: HostOf, session_id: SessionId) -> Response:
    message, data = await body.read(request, Ask, limits.MAX_ROUND_BODY)
    return body.write(await host.ask(owner, session_id, message, data))


@router.post("/sessions/{session_id}/truncate", summary="Cut the text")
async def truncate(request: Request, owner: Owner, host: HostOf, session_id: SessionId) -> Response:
    message, data = await body.read(request, Truncate, limits.MAX_ROUND_BODY)
    return body.write(await host.truncate(owner, session_id, message, data))


@router.post("/sessions/{session_id}/extend", summary="Go on with a new prompt")
async def extend(request: Request, owner: Owner, host: HostOf, session_id: SessionId) -> Response:
    message, data = await body.read(request, Extend, limits.MAX_OPEN_BODY)
    return body.write(await host.extend(owner, session_id, message, data))


@router.post("/sessions/{session_id}/generate", summary="Decode on the server alone, streamed")
async def generate(request: Request, owner: Owner, host: HostOf, session_id: SessionId) -> Response:
    message, _ = await body.read(request, Generate, limits.MAX_ROUND_BODY)
    tokens = host.generate(owner, session_id, message)

    async def frames() -> AsyncIterator[bytes]:
        # A frame is a length in four little-endian bytes and a message.
        try:
            async with contextlib.aclosing(tokens):
                async for token in tokens:
                    current_facts().tokens += 1
                    yield _frame(token)
        except CosdError as error:
            current_facts().fail(error.code)
            yield _frame(Generated(None, 0, error.code, error.message))

    return StreamingResponse(frames(), media_type=body.MEDIA_TYPE)


@router.delete("/sessions/{session_id}", status_code=204, summary="Close a session")
async def close(owner: Owner, host: HostOf, session_id: SessionId) -> Response:
    await host.close(owner, session_id)
    return Response(status_code=204)


def _frame(message: Generated) -> bytes:
    data = encode(message)
    return len(data).to_bytes(4, "little") + data
