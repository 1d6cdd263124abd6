"""`cosd serve` and `cosd generate` as processes of their own."""

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
import pytest

from edge_sdk.cli.app import build

RUN = "from edge_sdk.cli.main import main; raise SystemExit(main())"
ROOT = Path(__file__).parents[2]
GENERATE = ["generate", "the sea", "--method", "autoregressive", "--seed", "5"]


def cosd(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if "COSD" not in name}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        cwd=ROOT,
        env=inherited | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str], text: str | None = None) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(text, timeout=60)
    finally:
        process.kill()
    assert "Traceback" not in err
    return process.returncode, out, err


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `cosd` says to arguments that it refuses, in this process."""
    with pytest.raises(SystemExit) as ended:
        build()(list(arguments), prog_name="cosd")
    out, err = capsys.readouterr()
    assert ended.value.code == 1
    assert out.strip() == ""
    *before, last = err.splitlines()
    # What a server says of its start may stand before it.
    assert all(" INFO " in line for line in before)
    return last


@contextlib.contextmanager
def serve(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running server and its address."""
    process = cosd("serve", "toy:1", "--port", "0", *arguments, **environment)
    assert process.stderr is not None
    seen = []
    try:
        for line in process.stderr:
            seen.append(line)
            if found := re.search(r"listening on (http://\S+)", line):
                break
        else:
            raise AssertionError("".join(seen))
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve() as (_, url):
        yield url


def test_a_taken_port_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = finished(cosd("serve", "toy:1", "--port", str(port)))
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in err
    assert "choose another --port" in err


@pytest.mark.parametrize(
    ("arguments", "say"),
    [
        (["no-such-folder"], "neither a folder nor prepared"),
        ([""], "target is empty"),
        (["toy:x"], "'toy:x' is not a toy model"),
        (["toy:1", "--pack-weights"], "leave --pack-weights out"),
        (["toy:1", "--device", "tpu"], "--device: 'tpu' is no device"),
        (["toy:1", "--device", "cuda"], "runs on the CPU"),
        (["toy:1", "--cache-tokens", "5"], "--cache-tokens is 5, too small for any text"),
        (["toy:1", "--drafts", "a="], "--drafts: 'a=' is not NAME=FOLDER"),
        (
            ["toy:1", "--dtype", "float8"],
            "--dtype is 'float8'; it must be auto, float32, bfloat16 or float16",
        ),
        (["toy:1", "--port", "70000"], "--port is 70000; it must be within [0, 65535]"),
        (["toy:1", "--max-sessions", "0"], "--max-sessions is 0; it must be at least 1"),
        (["toy:1", "--host", "no.such.host.invalid"], "is not an address"),
        (
            ["toy:1", "--session-ttl", "inf"],
            "--session-ttl is inf; it must be a finite number above 0",
        ),
        (["toy:1", "--shared-prompts", "/dev/zero"], "no plain file"),
        (["no-such-folder", "--drafts", "a=/no/such"], "neither a folder nor prepared"),
        (["toy:1", "--drafts", "a=/no/such"], "/no/such"),
    ],
)
def test_bad_settings_are_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], say: str
) -> None:
    port = [] if "--port" in arguments else ["--port", "0"]
    assert say in refused(capsys, "serve", *arguments, *port)


def test_a_folder_that_is_no_target_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def said(*options: str) -> str:
        return refused(capsys, "serve", str(tmp_path), "--port", "0", *options)

    assert f"{tmp_path} has no config.json" in said()
    (tmp_path / "manifest.json").write_text("{}")
    assert "is a draft folder; a target is a Hugging Face folder" in said()
    (tmp_path / "config.json").write_text("{}")
    for options in (["--dtype", "float32"], ["--device", "cuda"]):
        assert f"not for {' '.join(options)}" in said("--pack-weights", *options)
    file = tmp_path / "config.json"
    assert "is not a folder" in refused(capsys, "serve", str(file), "--port", "0")


def test_what_can_be_known_of_a_target_needs_no_torch() -> None:
    code = (
        "import sys\n"
        "from server_app.before_loading import check_target\n"
        "check_target('toy:1', device='auto', dtype='auto', pack_weights=False, cache_tokens=0)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_ctrl_c_stops_the_server() -> None:
    with serve() as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=5) == 130
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1] == "interrupted"


def test_sigterm_without_a_drain_stops_the_server_soon_even_in_mid_stream() -> None:
    with serve("--drain-seconds", "0") as (process, url):
        client = cosd(*GENERATE, "--server", url, "--max-tokens", "4000")
        assert client.stdout is not None
        assert client.stdout.read(20)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=8) == 0
        assert time.monotonic() - begin < 4
        status, out, err = finished(client)
    assert status == 1
    assert "error: " in err.splitlines()[-1]
    assert out.endswith("\n")


def test_a_text_and_its_figures(address: str) -> None:
    status, out, err = finished(cosd(*GENERATE, "--server", address, "--max-tokens", "12"))
    assert status == 0
    assert out.endswith("\n")
    assert re.search(r"tokens +│ +12", err)
    assert "finish: length, seed: 5" in err
    piped = cosd(GENERATE[0], *GENERATE[2:], "--server", address, "--max-tokens", "12")
    assert finished(piped, "the sea")[1] == out


def test_ctrl_c_ends_a_text_in_a_line(address: str) -> None:
    process = cosd(*GENERATE, "--server", address, "--max-tokens", "4000")
    assert process.stdout is not None
    assert process.stdout.read(20)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    status, out, err = finished(process)
    assert status == 130
    # After the figures of what there was.
    assert err.splitlines()[-1] == "interrupted"
    assert out.endswith("\n")
    assert time.monotonic() - begin < 5
    # The session is closed: the server has nothing to do any more.
    assert httpx.get(f"{address}/ready").json()["status"] == "ready"


@pytest.mark.parametrize(
    ("arguments", "say"),
    [
        (["x", "--method", "magic"], "there are hybrid"),
        (["x"], "--draft is missing"),
        (["x", "--temperature", "-1"], "temperature is -1.0"),
        (["x", "--method", "autoregressive", "--top-p", "0"], "top_p is 0.0"),
        (["x", "--method", "hybrid", "--option", "law_format"], "NAME=VALUE"),
        (["x", "--method", "hybrid", "--option", "law_format=f8"], "law_format"),
        (["", "--method", "autoregressive"], "empty"),
        (["x", "--draft", "no-such-folder"], "no-such-folder"),
        (["x", "--method", "autoregressive", "--seed", "-1"], "seed is -1"),
        (["x", "--method", "autoregressive", "--server", "http://127.0.0.1:9"], "no connection"),
        (["x", "--method", "autoregressive", "--server", "nonsense"], "not the address"),
    ],
)
def test_bad_arguments_are_one_sentence(
    capsys: pytest.CaptureFixture[str], address: str, arguments: list[str], say: str
) -> None:
    where = [] if "--server" in arguments else ["--server", address]
    assert say in refused(capsys, "generate", *arguments, *where)


def test_stdin_that_is_no_text(address: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", RUN, "generate", "--method", "autoregressive", "--server", address],
        cwd=ROOT,
        input=b"\xff\xfe",
        capture_output=True,
        check=False,
    )
    assert process.returncode == 1
    assert b"stdin is not UTF-8 text" in process.stderr


def test_keys_from_the_environment() -> None:
    with serve(COSD_API_KEYS="one, two") as (_, url):
        text = [*GENERATE, "--server", url, "--max-tokens", "3"]
        status, _, err = finished(cosd(*text))
        assert status == 1
        assert "this server wants a key" in err
        assert finished(cosd(*text, COSD_API_KEY="three"))[0] == 1
        assert finished(cosd(*text, COSD_API_KEY="two"))[0] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", ""], "--host"),
        (["--host", "ü..é"], "--host"),
        (["--device", "foo"], "'foo' is no device"),
        (["--threads", "99999999999"], "threads"),
    ],
)
def test_settings_that_cannot_be_are_one_line(options: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edge_sdk.cli.main", "serve", "toy:1", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
