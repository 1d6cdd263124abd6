"""What a request and a session cost the server when the model costs nothing."""

from __future__ import annotations

import asyncio
import secrets
import statistics
import threading
import time
from typing import Any, Final

import numpy as np
import psutil
import uvicorn
from rich.console import Console
from rich.progress import track

from edge_sdk.sampling import Sampling
from edge_sdk.transport import HttpTransport
from edge_sdk.vocab import Alignment
from edge_sdk.wire import (
    PROTOCOL_VERSION,
    Generation,
    Open,
    Prompt,
    RegisterPair,
    Truncate,
    Verify,
    decode,
    encode,
)
from edge_sdk.wire.limits import MAX_OPEN_BODY, MAX_ROUND_BODY
from edge_sdk.wire.packing import pack_draft
from server_app.app import create_app
from server_app.host import Host
from server_app.settings import Settings
from server_app.target.toy import ToyTarget

_WARM: Final = 1000  # sessions before memory is looked at


async def request_milliseconds(count: int) -> float:
    """Median time of a verify over HTTP on loopback, from the request to its verdict."""
    target = ToyTarget.random(1)
    app = create_app(target, Settings(target="toy:1"))
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    await asyncio.to_thread(_wait_for, server)
    port = server.servers[0].sockets[0].getsockname()[1]
    transport = HttpTransport(f"http://127.0.0.1:{port}")
    try:
        return await _verify_milliseconds(transport, target, count)
    finally:
        await transport.aclose()
        server.should_exit = True
        await asyncio.to_thread(thread.join)


def _wait_for(server: uvicorn.Server) -> None:
    while not server.started:
        time.sleep(0.01)


async def _verify_milliseconds(transport: HttpTransport, target: ToyTarget, count: int) -> float:
    alignment = _alignment(target)
    await transport.register_pair(RegisterPair(alignment.target_fingerprint, alignment.bitmap))
    session = secrets.token_hex(16)
    await transport.open(session, _opening(alignment))
    draft = _draft(alignment)
    taken = []
    for number in range(count):
        begin = time.perf_counter()
        await transport.verify(session, Verify(2 * number, 0, draft))
        taken.append(time.perf_counter() - begin)
        await transport.truncate(session, Truncate(2 * number + 1, 0))
    return 1e3 * statistics.median(taken)


def sessions_come_and_go(count: int, console: Console) -> dict[str, Any]:
    """Memory over many sessions that are opened, verified once and closed or dropped."""
    return asyncio.run(_come_and_go(count, console))


async def _come_and_go(count: int, console: Console) -> dict[str, Any]:
    target = ToyTarget.random(1)
    app = create_app(target, Settings(target="toy:1", max_sessions=64))
    process = psutil.Process()
    before = 0
    async with app.router.lifespan_context(app):
        host: Host = app.state.host
        alignment = _alignment(target)
        host.register_pair(RegisterPair(alignment.target_fingerprint, alignment.bitmap))
        for number in track(range(_WARM + count), "sessions", console=console):
            if number == _WARM:
                before = process.memory_info().rss
            await _one_session(host, alignment, keep=number % 2 == 0)
        after = process.memory_info().rss
        for _, session_id in list(host.held()):
            await host.close("bench", session_id)
        await host.engine.call(lambda: None)
    return {
        "rss_growth": round(after / before - 1, 4),
        "sessions": count,
        "slots_left": target.cache_used,
    }


async def _one_session(host: Host, alignment: Alignment, *, keep: bool) -> None:
    """Opened, verified, and closed or left for the server to drop."""
    session = secrets.token_hex(16)
    body = encode(_opening(alignment))
    await host.open("bench", session, decode(Open, body, limit=MAX_OPEN_BODY), body)
    body = encode(Verify(0, 0, _draft(alignment)))
    await host.verify("bench", session, decode(Verify, body, limit=MAX_ROUND_BODY), body)
    if not keep:
        await host.close("bench", session)


def _alignment(target: ToyTarget) -> Alignment:
    return Alignment.between(target=target.vocabulary, draft=target.vocabulary)


def _opening(alignment: Alignment) -> Open:
    generation = Generation("hybrid", Sampling(), 64, seed=1)
    return Open(PROTOCOL_VERSION, alignment.pair_id, Prompt(text="the sea and"), generation)


def _draft(alignment: Alignment) -> bytes:
    ranks = np.array([65, 66, 67, 68])
    return pack_draft(ranks, np.full(4, 2**23), size=len(alignment))
