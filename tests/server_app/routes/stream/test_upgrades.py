"""Who may open the WebSocket of a session."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI
from harness.raw import KEY, OTHER_KEY, block
from harness.serving import Serving
from harness.sockets import dialled, opened
from websockets.exceptions import InvalidStatus

from edge_sdk.wire import Generate, Truncate
from edge_sdk.wire.frames import Up
from server_app.boot import Boot


@pytest.mark.parametrize(
    ("key", "headers", "options", "status", "code"),
    [
        (None, {}, {}, 401, "unauthorized"),
        ("wrong", {}, {}, 401, "unauthorized"),
        (KEY, {"origin": "https://evil.example"}, {}, 401, "unauthorized"),
        (KEY, {}, {"subprotocols": None}, 422, "invalid_request"),
        (KEY, {}, {"subprotocols": ["cosd.2"]}, 422, "invalid_request"),
    ],
)
async def test_upgrades_that_are_refused(
    locked: Serving,
    key: str | None,
    headers: dict[str, str],
    options: dict[str, Any],
    status: int,
    code: str,
) -> None:
    given = headers | ({"authorization": f"Bearer {key}"} if key else {})
    with pytest.raises(InvalidStatus) as caught:
        async with dialled(locked, "0" * 32, additional_headers=given, **options):
            pass
    assert caught.value.response.status_code == status
    body = json.loads(bytes(caught.value.response.body or b""))
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    if status == 401:
        assert caught.value.response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("session", ["x", "0" * 33, "A" * 32])
async def test_session_ids_that_are_none(server: Serving, session: str) -> None:
    with pytest.raises(InvalidStatus) as caught:
        async with dialled(server, session):
            pass
    assert caught.value.response.status_code == 422


async def test_a_session_of_another_key_is_not_there(locked: Serving) -> None:
    session = await opened(locked, key=KEY, method="greedy")
    async with dialled(locked, session, key=OTHER_KEY) as line:
        for slot, (kind, message) in enumerate(
            [(Up.VERIFY, block(q=None)), (Up.TRUNCATE, Truncate(0, 0)), (Up.GENERATE, Generate(0))]
        ):
            await line.send(kind, slot, message)
            assert (await line.failure(slot)).code == "session_lost"
    async with dialled(locked, session, key=KEY) as line:
        await line.send(Up.VERIFY, 0, block(q=None))
        assert (await line.verdict(0)).accepted == 0


async def test_nothing_is_compressed(server: Serving) -> None:
    session = await opened(server, method="greedy")
    async with dialled(server, session, compression="deflate") as line:
        assert line.connection.protocol.extensions == []


async def test_an_upgrade_while_the_model_loads_is_told_to_come_again() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    boot = Boot(lambda tell: FastAPI(), on_ready=lambda: None, on_failure=lambda error: None)
    extensions: dict[str, Any] = {"websocket.http.response": {}}
    scope = {"type": "websocket", "path": "/x", "extensions": extensions}
    await boot(scope, receive, send)
    assert (sent[0]["type"], sent[0]["status"]) == ("websocket.http.response.start", 503)
    assert json.loads(sent[1]["body"])["error"]["code"] == "server_away"
