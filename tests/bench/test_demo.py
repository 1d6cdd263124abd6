from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.compare import DEFAULT_GAMMA

ROOT = Path(__file__).parents[2]
TOYS = ("--target", "toy:1", "--draft", "toy:2")
Program = Callable[..., "subprocess.CompletedProcess[str]"]


def test_writes_with_both_methods_and_ends_with_their_figures(program: Program) -> None:
    done = program("bench.demo", *TOYS, "--prompt", "In the [bold] end", "--tokens", "24")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("In the [bold] end") == 2
    last = done.stdout[done.stdout.rindex("tokens/s") :]
    for row in ("acceptance", "target calls a token", "bits up a token", "bits down a token"):
        assert row in last
    assert "261" in last  # V_C: 256 bytes, four words in common, the end of text
    assert "hybrid" in done.stdout
    assert "autoregressive" in done.stdout


def test_the_last_line_is_json(program: Program) -> None:
    done = program("bench.demo", *TOYS, "--json", "--minutes", "0.02")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    for name in (
        "speedup_sampling",
        "speedup_greedy",
        "acceptance",
        "down_bits_per_token",
        "up_bits_per_token",
        "target_calls_per_token",
    ):
        assert isinstance(figures[name], float), name
    assert figures["common_vocabulary"] == 261
    assert 0 < figures["target_calls_per_token"] <= 1
    assert figures["gamma"] == DEFAULT_GAMMA
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows if len(row) == 12 and row[0].isdigit()] == 2 * list("12345")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--temperature", "-1"), "temperature"),
        (("--prompt", ""), "prompt"),
        (("--target", "no-such-model"), "no-such-model"),
        (("--draft", "toy:two"), "toy:two"),
        # The server's own words reach the person who started the demo.
        (("--target", "toy:one"), "toy:one"),
    ],
)
def test_wrong_arguments_end_in_a_sentence(
    program: Program, arguments: tuple[str, ...], words: str
) -> None:
    done = program("bench.demo", *TOYS, *arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are found in /proc")
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_no_server_is_left_however_the_demo_ends(number: signal.Signals, status: int) -> None:
    with _measuring() as demo:
        server = _child(demo.pid)
        demo.send_signal(number)
        assert demo.wait(30) == status
        assert _ends(server)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are found in /proc")
def test_no_server_is_left_when_the_demo_is_stopped_while_it_starts() -> None:
    with _demo("--json", "--minutes", "1") as demo:
        server = _child(demo.pid)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 130
        assert _ends(server)


@pytest.mark.models
def test_the_real_pair_writes(program: Program) -> None:
    done = program("bench.demo", "--tokens", "24", "--temperature", "0.7", "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert "ai.google.dev/gemma/terms" in done.stdout
    row = next(line for line in done.stdout.splitlines() if "target calls" in line)
    hybrid, alone = (float(cell) for cell in row.split("│")[2:4])
    assert hybrid < 0.9
    assert alone == 1.0


@contextmanager
def _demo(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-u", "-m", "bench.demo", *TOYS, *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as demo:
        try:
            yield demo
        finally:
            demo.kill()


@contextmanager
def _measuring() -> Iterator[subprocess.Popen[str]]:
    """A demo in the middle of its work."""
    with _demo("--json", "--minutes", "1") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "in turns" in line:
                break
        else:
            pytest.fail("the demo ended before it measured")
        yield demo


def _child(parent: int) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children")
    end = time.monotonic() + 20
    while time.monotonic() < end:
        for child in map(int, children.read_text().split()):
            if b"bench.guarded" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        time.sleep(0.02)
    raise AssertionError("the demo started no server")


def _ends(process: int) -> bool:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            os.kill(process, 0)
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":  # ended; whoever inherited it has not looked yet
            return True
        time.sleep(0.05)
    return False
