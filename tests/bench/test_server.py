from __future__ import annotations

import tempfile
from pathlib import Path

import httpx
import pytest

from bench.server import ServerProcess
from edge_sdk.errors import ServerUnavailable


def logs() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("cosd-serve-*.log"))


def test_serves_with_its_key_and_is_gone_after_the_block() -> None:
    before = logs()
    told: list[str] = []
    with ServerProcess("toy:1") as server:
        server.wait_ready(told.append)
        assert told
        card = f"{server.url}/v1/models"
        assert httpx.get(card).status_code == 401
        key = {"authorization": f"Bearer {server.api_key}"}
        assert httpx.get(card, headers=key).json()["models"][0]["name"] == "toy:1"
    with pytest.raises(httpx.ConnectError):
        httpx.get(card)
    assert logs() <= before


def test_is_stopped_when_the_block_fails() -> None:
    server = ServerProcess("toy:1")

    def fail() -> None:
        with server:
            server.wait_ready()
            raise RuntimeError("own")

    with pytest.raises(RuntimeError, match="own"):
        fail()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/ready")


def test_a_server_that_dies_is_told_with_its_log() -> None:
    with (
        ServerProcess("/no/such/folder") as server,
        pytest.raises(ServerUnavailable, match="/no/such/folder"),
    ):
        server.wait_ready()


def test_settings_of_the_environment_do_not_get_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PORT": "1", "HOST": "192.0.2.1", "LOG_LEVEL": "error"}.items():
        monkeypatch.setenv(f"COSD_{name}", value)
    monkeypatch.setenv("COSD_API_KEYS", "another")
    with ServerProcess("toy:1") as server:
        server.wait_ready()
        assert server.url.startswith("http://127.0.0.1:")
