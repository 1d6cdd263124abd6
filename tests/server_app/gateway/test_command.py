"""`cosd gateway` as a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from harness.gateway import slow_target
from harness.serving import PROMPT, Serving, _until, serving

RUN = "from edge_sdk.cli.main import main; raise SystemExit(main())"
ROOT = Path(__file__).parents[3]
ALONE = ("--method", "autoregressive", "--port", "0")


def cosd(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if "COSD" not in name}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, "gateway", *arguments],
        cwd=ROOT,
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def running(*arguments: str, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The gateway's address, once it listens."""
    process = cosd(*ALONE, *arguments, **environment)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"listening on (\S+)", line):
                yield found[1], process
                break
        else:
            pytest.fail("it does not listen")
    finally:
        process.kill()
        process.communicate()


def refused(*arguments: str, **environment: str) -> str:
    process = cosd(*arguments, **environment)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    assert "Traceback" not in errors
    return errors.splitlines()[-1]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_answers_and_ends(server: Serving, number: signal.Signals, status: int) -> None:
    with running("--server", server.url, "--alias", "gpt-toy") as (url, process):
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            reply = client.completions.create(model="gpt-toy", prompt=PROMPT, max_tokens=3)
            assert reply.usage is not None
            assert reply.usage.completion_tokens == 3
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == status, errors
        assert "Traceback" not in errors
        assert "INFO going down, 0 requests under way" in errors


@pytest.mark.parametrize("signals", [1, 2])
def test_it_ends_while_a_text_is_written(signals: int) -> None:
    with serving(slow_target(0.05)) as server, running("--server", server.url) as (url, process):
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            events = client.completions.create(
                model="toy", prompt=PROMPT, max_tokens=4000, stream=True
            )
            next(events)
            for _ in range(signals):
                process.send_signal(signal.SIGINT)
                time.sleep(0.2)
            with pytest.raises(openai.APIError, match="going down"):
                for _ in events:
                    pass
            _, errors = process.communicate(timeout=20)
            assert process.returncode == 130, errors
            assert "Traceback" not in errors
        _until(lambda: server.sessions == 0)


def test_a_device_that_is_offline_starts() -> None:
    with running("--server", "http://127.0.0.1:1") as (url, _):
        reply = httpx.get(f"{url}/models", timeout=30)
        assert reply.status_code == 502
        assert reply.json()["error"]["code"] == "connection_failed"


def test_a_server_that_hangs_does_not_keep_it_from_listening() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:
        begin = time.monotonic()
        port = hung.getsockname()[1]
        with running("--server", f"http://127.0.0.1:{port}") as (url, process):
            assert httpx.get(f"{url.removesuffix('/v1')}/health").status_code == 200
            assert time.monotonic() - begin < 20
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=10) == 0
            assert process.stderr is not None
            assert "Traceback" not in process.stderr.read()


def test_other_machines_are_warned_of(server: Serving) -> None:
    process = cosd(*ALONE, "--host", "0.0.0.0", "--server", server.url)
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "listening" in line:
                break
    finally:
        process.kill()
        process.communicate()
    assert any("COSD_GATEWAY_KEY is not set" in line for line in lines)
    assert re.search(r"listening on http://127\.0\.0\.1:\d+/v1 and on every other", lines[-1])


def test_a_key_that_the_server_does_not_take() -> None:
    with serving(keys=("good",)) as server:
        said = refused(*ALONE, "--server", server.url, COSD_API_KEY="bad")
        assert "not accepted" in said
        assert "key for the server came from COSD_API_KEY" in said
        assert "is read from COSD_API_KEY" in refused(*ALONE, "--server", server.url)
    said = refused(*ALONE, COSD_API_KEY="ü")
    assert said.startswith("error: COSD_API_KEY is no usable key")


def test_lines_have_the_time_as_those_of_a_server(server: Serving) -> None:
    process = cosd(*ALONE, "--server", server.url)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
    finally:
        process.kill()
        process.communicate()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z INFO ", line)


def test_one_line_says_what_is_wrong(server: Serving, tmp_path: Path) -> None:
    assert "--draft is missing" in refused("--port", "0")
    for key in ("ü", " "):
        assert "COSD_GATEWAY_KEY is blank" in refused(*ALONE, COSD_GATEWAY_KEY=key)
    assert "method 'magic' does not exist" in refused("--method", "magic")
    assert str(tmp_path) in refused("--port", "0", "--draft", str(tmp_path))
    assert "--host" in refused(*ALONE, "--host", "no.such.name.invalid")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "choose another --port" in refused("--method", "autoregressive", "--port", port)
