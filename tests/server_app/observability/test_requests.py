"""Ids of requests, and what becomes of exceptions that nothing handled."""

from __future__ import annotations

import logging
import re

import httpx
import pytest
from harness.raw import KEY, Raw
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

from server_app.observability.facts import current_facts, current_request_id
from server_app.observability.logs import facts_of
from server_app.observability.metrics import Metrics
from server_app.observability.requests import RequestLog


async def echo(request: Request) -> Response:
    current_facts().tokens += 3
    return PlainTextResponse(current_request_id())


async def broken(request: Request) -> Response:
    raise ValueError("the secret prompt")


async def not_ready(request: Request) -> Response:
    return PlainTextResponse("draining", status_code=503)


async def socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text(current_request_id())
    current_facts().fail("session_lost")
    await websocket.close()


async def refused(websocket: WebSocket) -> None:
    await websocket.close()


def app() -> tuple[RequestLog, Metrics]:
    metrics = Metrics(())
    inner = Starlette(
        routes=[
            Route("/echo", echo),
            Route("/broken", broken),
            Route("/ready", not_ready),
            Route("/full", not_ready),
            WebSocketRoute("/socket", socket),
            WebSocketRoute("/refused", refused),
        ]
    )
    return RequestLog(inner, metrics=metrics), metrics


@pytest.mark.parametrize("given", ["abc-1.2_3", "a", "x" * 64])
async def test_a_sane_id_is_kept(raw: Raw, given: str) -> None:
    reply = await raw.client.get("/health", headers={"x-request-id": given})
    assert reply.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "a=b", 'a"', "%0a", "\xff".encode()])
async def test_another_id_is_replaced(raw: Raw, given: str | bytes) -> None:
    seen = set()
    for _ in range(2):
        reply = await raw.client.get("/health", headers={"x-request-id": given})
        seen.add(reply.headers["x-request-id"])
    assert len(seen) == 2
    assert all(re.fullmatch(r"[0-9a-f]{16}", each) for each in seen)


async def test_errors_carry_the_id(raw: Raw) -> None:
    headers = {"authorization": f"Bearer {KEY}", "x-request-id": "mine"}
    for path in ("/no/such/thing", f"/v1/sessions/{'1' * 32}/verify", "/v1/sessions/x/verify"):
        reply = await raw.client.post(path, headers=headers)
        assert reply.status_code >= 400
        assert reply.headers["x-request-id"] == "mine"


async def test_the_id_is_known_where_the_request_is_handled() -> None:
    logged, _ = app()
    transport = httpx.ASGITransport(app=logged)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        reply = await client.get("/echo", headers={"x-request-id": "here"})
    assert reply.text == "here"
    assert current_request_id() == ""


async def test_an_exception_is_a_server_fault_with_its_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logged, metrics = app()
    transport = httpx.ASGITransport(app=logged, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        with caplog.at_level(logging.INFO, "server_app"):
            reply = await client.get("/broken", headers={"x-request-id": "it"})
    # Starlette's own handler answers first here; the app of the server has none.
    assert reply.status_code == 500
    assert reply.headers["x-request-id"] == "it"
    failed = [record for record in caplog.records if record.exc_info]
    assert [facts_of(record)["request_id"] for record in failed] == ["it"]
    assert metrics.registry.get_sample_value("cosd_errors_total", {"code": "server_fault"}) == 1


async def test_an_exception_of_the_server_is_answered(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("the secret prompt")

    monkeypatch.setattr(raw.host, "round_limit", broken)
    lenient = httpx.ASGITransport(app=raw.client._transport.app, raise_app_exceptions=False)  # type: ignore[attr-defined]
    async with httpx.AsyncClient(transport=lenient, base_url="http://x") as client:
        headers = {"authorization": f"Bearer {KEY}", "x-request-id": "it"}
        reply = await client.post(f"/v1/sessions/{'1' * 32}/verify", headers=headers)
    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "server_fault"
    assert "secret" not in reply.text
    assert reply.headers["x-request-id"] == "it"


def test_connections_are_counted_and_carry_their_id() -> None:
    logged, metrics = app()
    value = metrics.registry.get_sample_value
    with (
        TestClient(logged) as client,
        client.websocket_connect("/socket", headers={"x-request-id": "ws"}) as connection,
    ):
        assert connection.receive_text() == "ws"
        assert dict(connection.extra_headers or ())[b"x-request-id"] == b"ws"
    assert value("cosd_websocket_connections") == 0
    assert value("cosd_requests_in_flight") == 0
    assert value("cosd_errors_total", {"code": "session_lost"}) == 1
    labels = {"verb": "WEBSOCKET", "route": "/socket", "status": "101"}
    assert value("cosd_requests_total", labels) == 1


def test_lines_hold_facts(caplog: pytest.LogCaptureFixture) -> None:
    logged, _ = app()
    with TestClient(logged) as client, caplog.at_level(logging.DEBUG, "server_app"):
        client.get("/echo", headers={"x-request-id": "line"})
    (record,) = [record for record in caplog.records if record.name.endswith("requests")]
    facts = facts_of(record)
    assert facts.pop("seconds") >= 0
    assert facts == {
        "verb": "GET",
        "route": "/echo",
        "status": 200,
        "request_id": "line",
        "tokens": 3,
    }


def test_a_probe_of_a_draining_server_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    logged, _ = app()
    with TestClient(logged) as client, caplog.at_level(logging.DEBUG, "server_app"):
        client.get("/ready")
        client.get("/full")
    levels = [record.levelno for record in caplog.records if record.name.endswith("requests")]
    assert levels == [logging.DEBUG, logging.WARNING]
