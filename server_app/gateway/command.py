"""`cosd gateway`: OpenAI's interface on this device."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path
from typing import Annotated, Final

import typer

from edge_sdk.cli.options import DEFAULT_SERVER, DraftOption, ServerOption, draft_folder
from edge_sdk.client import EdgeClient
from edge_sdk.decoding.registry import METHODS, method_named
from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.errors import InvalidRequest, ServerUnavailable, TransportError, Unauthorized
from server_app.gateway.access import Access
from server_app.gateway.application import create_app
from server_app.gateway.drafted_text import AUTO
from server_app.gateway.pool import Pool
from server_app.gateway.process import Process
from server_app.listening import bound, only_this_machine, places_of
from server_app.observability.logs import configure

log = logging.getLogger("server_app.gateway")

_SERVER_KEY = "COSD_API_KEY"
_OWN_KEY = "COSD_GATEWAY_KEY"
_FIRST_CONNECTION: Final = 5.0  # seconds that the start waits for the server


def gateway(
    server: ServerOption = DEFAULT_SERVER,
    draft: DraftOption = None,
    drafts: Annotated[
        int, typer.Option(min=1, max=64, help="Texts written at once, each with its own draft.")
    ] = 1,
    queue: Annotated[
        int, typer.Option(min=0, help="Requests that may wait; more are refused for a while.")
    ] = 8,
    method: Annotated[
        str,
        typer.Option(
            help=f"auto, or one of {', '.join(METHODS)}. auto is lossless: greedy at temperature "
            f"0, coupled for a request with a seed, else hybrid."
        ),
    ] = AUTO,
    alias: Annotated[
        list[str] | None,
        typer.Option(
            help="Further name of the model, for programs that insist on one; may be repeated."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8078,
    threads: Annotated[int | None, typer.Option(help="CPU threads of each draft.")] = None,
) -> None:
    """Answer OpenAI's clients on this device: the draft runs here, the server checks it.

    Programs need only another base address, http://127.0.0.1:8078/v1. COSD_API_KEY is the key
    for the server; COSD_GATEWAY_KEY, if set, is the key that programs have to show here.

    Example: `cosd gateway --server http://gpu-box:8077 --draft my-draft`
    """
    configure("info", "text")
    if method != AUTO:
        method_named(method)
    folder = draft_folder(draft, method=method)
    own_key = _own_key()
    with bound(host, port) as listener:
        _warn(listener, own_key)
        models = [_opened(folder, threads) for _ in range(drafts)] if folder else []
        try:
            interrupted = asyncio.run(
                _serve(
                    listener,
                    models or [None] * drafts,
                    server=server,
                    queue=queue,
                    access=Access(own_key),
                    aliases=alias or [],
                    method=method,
                )
            )
        finally:
            for model in models:
                model.close()
    if interrupted:
        raise KeyboardInterrupt
    log.info("ended")


async def _serve(
    listener: socket.socket,
    models: list[OnnxDraft] | list[None],
    *,
    server: str,
    queue: int,
    access: Access,
    aliases: list[str],
    method: str,
) -> bool:
    """Serve until a signal; True if it was Ctrl-C."""
    key = os.environ.get(_SERVER_KEY) or None
    try:
        clients = [EdgeClient(server, draft=model, api_key=key, offline="fail") for model in models]
    except InvalidRequest as error:
        if error.field != "api_key":
            raise
        raise InvalidRequest(
            f"{_SERVER_KEY} is no usable key for the server: {error.message}", field=_SERVER_KEY
        ) from error
    pool = Pool(clients, queue=queue)
    connecting = asyncio.create_task(_connected(pool))
    try:
        await _waited_for(connecting)
        process = Process(create_app(pool, access=access, aliases=aliases, method=method), pool)
        log.info("listening on %s", places_of(listener, "/v1"))
        await process.serve(sockets=[listener])
        return process.interrupted
    finally:
        connecting.cancel()
        await asyncio.wait((connecting,))
        await pool.aclose()


async def _waited_for(connecting: asyncio.Task[None]) -> None:
    """Wait for the first connection, but not long: a server that hangs would keep a gateway from
    listening.

    Raises:
        CosdError: it failed in that time for what cannot get better by itself.
    """
    await asyncio.wait((connecting,), timeout=_FIRST_CONNECTION)
    if connecting.done():
        await connecting
        return
    log.warning("the server has not answered yet; requests wait for it")
    connecting.add_done_callback(_failed_late)


def _failed_late(connecting: asyncio.Task[None]) -> None:
    error = None if connecting.cancelled() else connecting.exception()
    if error is not None:
        log.error("%s; requests are refused for that", error)


async def _connected(pool: Pool) -> None:
    """Connect; a device may be offline for now, but what cannot get better by itself ends.

    Raises:
        CosdError: what cannot.
    """
    try:
        await pool.connect()
        card = await pool.card()
        log.info("the server writes with %s", card.model)
    except (TransportError, ServerUnavailable) as error:
        log.warning("%s; requests are refused until the server answers", error.message)
    except Unauthorized as error:
        given = "came from" if os.environ.get(_SERVER_KEY) else "is read from"
        raise Unauthorized(
            f"{error.message} (the gateway's key for the server {given} {_SERVER_KEY})"
        ) from error


def _opened(folder: Path, threads: int | None) -> OnnxDraft:
    log.info("loading the draft %s", folder)
    return OnnxDraft.open(folder, threads=threads)


def _own_key() -> str | None:
    given = os.environ.get(_OWN_KEY)
    if not given:
        return None
    key = given.strip()
    if not (key and key.isascii() and key.isprintable()):
        raise InvalidRequest(
            f"{_OWN_KEY} is blank or has characters that a header cannot carry; use printable "
            f"ASCII",
            field="api_key",
        )
    return key


def _warn(listener: socket.socket, key: str | None) -> None:
    if only_this_machine(listener):
        return
    if key is None:
        log.warning(
            "the gateway is reachable from other machines and %s is not set: whoever reaches it "
            "writes with this device's draft and with its key for the server",
            _OWN_KEY,
        )
    else:
        log.warning(
            "the gateway is reachable from other machines over plain HTTP: texts and the key can "
            "be read on the way; put a proxy with TLS before it"
        )
