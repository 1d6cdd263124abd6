"""Settings, and the options made from them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from edge_sdk.cli.app import build
from edge_sdk.errors import InvalidRequest
from server_app.command import serve, settings_from
from server_app.options import panel_of
from server_app.settings import Settings

SECRETS = {"api_keys", "metrics_key"}
PANELS = {
    "Model",
    "Network",
    "Batching",
    "Sessions and memory",
    "Limits",
    "Observability",
}


def test_every_setting_is_an_option_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(build(), ["serve", "--help"]).output
    for name, field in Settings.model_fields.items():
        assert field.description, name
        if name in SECRETS:
            assert f"--{name.replace('_', '-')}" not in shown
            assert f"COSD_{name.upper()}" in shown
            continue
        assert panel_of(field) in PANELS, name
        assert field.description.endswith("."), name
        assert ("target" if name == "target" else f"--{name.replace('_', '-')}") in shown
    assert all(f"─ {panel} ─" in shown for panel in PANELS)
    assert "default: 8077" in shown


def test_options_have_no_default_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the environment counts where an option is not given."""
    seen: list[Settings] = []
    monkeypatch.setenv("COSD_MAX_SESSIONS", "7")
    monkeypatch.setenv("COSD_WARM_UP", "0")
    monkeypatch.setattr("server_app.command._run", lambda settings, *_: seen.append(settings))
    arguments = ["serve", "toy:1", "--port", "0", "--batch-wait-ms", "0.5", "--metrics-open"]
    assert CliRunner().invoke(build(), arguments).exit_code == 0
    (settings,) = seen
    assert settings.target == "toy:1"
    assert settings.max_sessions == 7
    assert settings.warm_up is False
    assert settings.batch_wait_ms == 0.5
    assert settings.metrics_open is True


def test_the_command_is_there_without_torch() -> None:
    """Help and wrong options answer quickly, and so does a server that loads."""
    code = "import sys, server_app.command; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert serve.__doc__


def test_tokens_of_a_batch() -> None:
    assert Settings().batch_tokens("cuda") == 2048
    assert Settings().batch_tokens("cpu") == 512
    assert Settings(max_batch_tokens=64).batch_tokens("cuda") == 64


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_batch_tokens": -1},
        {"prefill_chunk": 0},
        {"batch_wait_ms": -0.1},
        {"queue_limit": 0},
        {"queue_seconds": 0},
        {"cache_tokens": -1},
        {"max_sessions_per_key": 0},
        {"max_tokens_in_flight_per_key": 0},
        {"requests_per_second_per_key": -1},
        {"drain_seconds": -1},
        {"drain_seconds": float("nan")},
        {"session_ttl": float("inf")},
        {"requests_per_second_per_key": float("nan")},
        {"stall_seconds": 0},
        {"log_format": "xml"},
        {"metrics_key": "ü"},
    ],
)
def test_bounds(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)  # type: ignore[arg-type]


def test_a_metrics_key_that_is_blank_is_none() -> None:
    assert Settings(metrics_key="  ").metrics_key is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("COSD_PORT", "99999", "COSD_PORT is '99999'; it must be within [0, 65535]"),
        ("COSD_PORT", "abc", "COSD_PORT is 'abc'; it must be an integer within [0, 65535]"),
        ("COSD_LOG_FORMAT", "xml", "COSD_LOG_FORMAT is 'xml'; it must be text or json"),
        ("COSD_WARM_UP", "perhaps", "COSD_WARM_UP is 'perhaps'; it must be true or false"),
        (
            "COSD_API_KEYS",
            "a,schl\u00fcssel",
            "COSD_API_KEYS: has a key that an HTTP header cannot",
        ),
    ],
)
def test_a_variable_is_named_as_it_is_written(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidRequest) as caught:
        settings_from({})
    assert caught.value.message.startswith(said)
    assert "schl" not in caught.value.message
    # The command line has the last word.
    if name == "COSD_PORT":
        assert settings_from({"port": 1}).port == 1
