"""Requests whose client went away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from edge_sdk.errors import ConnectionFailed

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Carry out `work`, but no longer than somebody waits for it. The body must have been read.

    Raises:
        ConnectionFailed: the client went away; nobody will read the reply.
    """
    task = asyncio.ensure_future(work)
    # Most replies come so soon that listening for the end of the connection is not worth it.
    done, _ = await asyncio.wait({task}, timeout=0)
    if done:
        return task.result()
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ConnectionFailed("the client went away before its reply was ready")
    finally:
        for other in (task, gone):
            if not other.done():
                other.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await other


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
