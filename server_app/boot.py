"""What answers while the model loads. Imports no torch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from edge_sdk.errors import ServerAway
from server_app import problems
from server_app.openai.interface import problems as openai_problems
from server_app.readiness import health_reply

log = logging.getLogger("server_app")

_REFUSAL: Final = "websocket.http.response"  # ASGI extension: an upgrade is answered as a request
_TRY_AGAIN_LATER: Final = 1013  # WebSocket close code


class Boot:
    """An ASGI app that loads another one in a thread and then hands everything to it.

    Until then `/health` is fine, `/ready` says "loading" and what is being done, and
    everything else is refused with 503.

    Args:
        load: makes the app; given a function to tell what it is doing.
        on_ready: called once the app answers.
        on_failure: called when `load` or the app's start raised; see `failure`.

    Attributes:
        app: the app, once it answers.
        failure: what was raised instead.
    """

    def __init__(
        self,
        load: Callable[[Callable[[str], None]], FastAPI],
        *,
        on_ready: Callable[[], None],
        on_failure: Callable[[], None],
    ) -> None:
        self._load = load
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._stop = asyncio.Event()
        self._begun = time.monotonic()
        self._doing = "starting"
        self.app: FastAPI | None = None
        self.failure: BaseException | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self.app is not None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket" and _REFUSAL not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER})
        else:
            await self._while_loading(scope, receive, send)

    async def _while_loading(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = f"{self._doing} ({time.monotonic() - self._begun:.0f} s since the start)"
        if scope["path"] == "/health":
            reply = health_reply(200, "loading", told)
        elif scope["path"] == "/ready":
            reply = health_reply(503, "loading", told)
        else:
            error = ServerAway("the model is still loading; try again shortly", retry_after=1.0)
            form = openai_problems if scope["path"] in openai_problems.PATHS else problems
            reply = form.reply(error)
        await reply(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        running = asyncio.create_task(self._run())
        running.add_done_callback(self._ended)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._stop.set()
        await asyncio.wait({running})
        await send({"type": "lifespan.shutdown.complete"})

    async def _run(self) -> None:
        app = await self._loaded()
        async with app.router.lifespan_context(app):
            self.app = app
            self._on_ready()
            await self._stop.wait()

    def _ended(self, running: asyncio.Task[None]) -> None:
        """Keep what was raised, which whoever started this tells."""
        error = None if running.cancelled() else running.exception()
        if error is not None:
            self.failure = error
            self._on_failure()

    async def _loaded(self) -> FastAPI:
        # A thread of its own, which ends: see docs/operate.md on threads that compute.
        loader = ThreadPoolExecutor(1, thread_name_prefix="load")
        try:
            return await asyncio.get_running_loop().run_in_executor(loader, self._load, self._tell)
        finally:
            loader.shutdown(wait=False)

    def _tell(self, doing: str) -> None:
        self._doing = doing
        log.info("%s", doing)
