"""Health apart from readiness, loaded or not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from harness.raw import Raw
from harness.serving import until

from edge_sdk.errors import InvalidRequest
from server_app.boot import Boot


async def words(client: httpx.AsyncClient, path: str) -> tuple[int, str]:
    reply = await client.get(path)
    assert reply.headers["cache-control"] == "no-store"
    return reply.status_code, reply.json()["status"]


async def test_a_server_that_works(raw: Raw) -> None:
    assert await words(raw.client, "/health") == (200, "ok")
    assert await words(raw.client, "/ready") == (200, "ready")


async def test_a_drain_is_healthy_and_not_ready(raw: Raw) -> None:
    raw.host.draining = True
    assert await words(raw.client, "/health") == (200, "ok")
    assert await words(raw.client, "/ready") == (503, "draining")


async def test_an_engine_that_hangs(raw: Raw) -> None:
    raw.client._transport.app.state.settings.stall_seconds = 0.05  # type: ignore[attr-defined]
    go = threading.Event()
    hanging = asyncio.ensure_future(raw.host.engine.call(go.wait))
    await asyncio.sleep(0.2)
    assert await words(raw.client, "/health") == (503, "stalled")
    assert await words(raw.client, "/ready") == (200, "ready")
    go.set()
    await hanging
    await raw.host.engine.call(lambda: None)
    raw.client._transport.app.state.settings.stall_seconds = 5.0  # type: ignore[attr-defined]
    assert await words(raw.client, "/health") == (200, "ok")


async def test_an_idle_engine_does_not_hang(raw: Raw) -> None:
    await asyncio.sleep(1.2)
    assert raw.host.engine.heartbeat_age < 1.1


async def test_an_engine_that_died(raw: Raw) -> None:
    await asyncio.to_thread(raw.host.engine.stop)
    assert await words(raw.client, "/health") == (503, "dead")
    assert await words(raw.client, "/ready") == (503, "dead")


class Life:
    """A boot with its lifespan, without a server."""

    def __init__(self, load: Callable[[Callable[[str], None]], FastAPI]) -> None:
        self.events: list[str] = []
        self.boot = Boot(
            load,
            on_ready=lambda: self.events.append("ready"),
            on_failure=lambda: self.events.append("failed"),
        )
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.boot), base_url="http://x"
        )
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[str] = []

    async def __aenter__(self) -> Life:
        self._task = asyncio.create_task(
            self.boot({"type": "lifespan"}, self._messages.get, self._send)  # type: ignore[arg-type]
        )
        await self._messages.put({"type": "lifespan.startup"})
        await until(lambda: self.sent == ["lifespan.startup.complete"])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._messages.put({"type": "lifespan.shutdown"})
        await self._task
        await self.client.aclose()

    async def _send(self, message: Any) -> None:
        self.sent.append(message["type"])


async def test_an_app_takes_over_when_it_is_loaded() -> None:
    go = threading.Event()
    app = FastAPI()
    app.add_api_route("/health", lambda: {"status": "its own"})

    def load(tell: Callable[[str], None]) -> FastAPI:
        tell("half way")
        assert go.wait(10)
        return app

    async with Life(load) as life:
        await until(lambda: life.boot._doing == "half way")
        assert await words(life.client, "/health") == (200, "loading")
        assert await words(life.client, "/ready") == (503, "loading")
        assert "half way" in (await life.client.get("/ready")).json()["detail"]
        refused = await life.client.put("/v1/sessions/x")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert set(refused.json()["error"]) == {"code", "message", "field", "type", "param"}
        for path in ("/v1/completions", "/v1/chat/completions"):
            refused = await life.client.post(path)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert refused.json()["error"]["type"] == "server_error"
        closed: list[Any] = []

        async def send(message: Any) -> None:
            closed.append(message)

        await life.boot({"type": "websocket", "path": "/x"}, send, send)  # type: ignore[arg-type]
        assert closed == [{"type": "websocket.close", "code": 1013}]
        go.set()
        await until(lambda: life.events == ["ready"])
        assert (await life.client.get("/health")).json() == {"status": "its own"}
    assert life.sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.parametrize("late", [False, True])
async def test_a_failure_is_kept(late: bool) -> None:
    def load(tell: Callable[[str], None]) -> FastAPI:
        if not late:
            raise InvalidRequest("no such model")

        async def lifespan(app: FastAPI) -> Any:
            raise InvalidRequest("no such model")
            yield

        return FastAPI(lifespan=lifespan)

    async with Life(load) as life:
        await until(lambda: life.events == ["failed"])
        assert isinstance(life.boot.failure, InvalidRequest)
        assert life.boot.app is None
