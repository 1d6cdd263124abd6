"""`python -m bench.rounds`."""

from __future__ import annotations

import json

import pytest
from harness.serving import serving
from typer.testing import CliRunner

from bench.rounds import app
from edge_sdk.errors import CosdError
from server_app.target.toy import ToyTarget


def test_rounds_are_timed_at_every_server(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda: ToyTarget.random(1)) as one, serving(lambda: ToyTarget.random(1)) as two:
        result = CliRunner().invoke(app, [one.url, two.url, "--texts", "1"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout.splitlines()[-1])
    assert figures["rounds"] > 5
    for by_transport in figures["milliseconds"].values():
        assert all(0 < value < 1000 for value in by_transport.values())


def test_another_target_is_refused() -> None:
    with serving() as server:
        result = CliRunner().invoke(app, [server.url])
    assert isinstance(result.exception, CosdError)
