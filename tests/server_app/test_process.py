"""A server process from its first second to its last: loading, draining, signals."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from harness.raw import block, opening
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from edge_sdk.wire import Generate, Generated, Verdict, decode, encode
from edge_sdk.wire.frames import SUBPROTOCOL, Down, Up, frame, split
from edge_sdk.wire.limits import MAX_REPLY_BODY

ROOT = Path(__file__).parents[2]
# A load that takes so long, and passes of the toy that take so long.
SLOW = """
import time
import server_app.command as command
real = command.load_app
def slow(settings, source, progress):
    import server_app.target.loading as loading
    progress("reading weights, file 1 of 9")
    time.sleep({loading})
    load = loading.load_target
    loading.load_target = lambda *a, **k: load(*a, seconds_per_pass={per_pass}, **k)
    return real(settings, source, progress)
command.load_app = slow
from edge_sdk.cli.main import main
raise SystemExit(main())
"""


class Running:
    """A server process and what it logged so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @functools.cached_property
    def url(self) -> str:
        return self.wait_for(r"(http://[\d.:]+\d)/ready")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def wait_for(self, pattern: str) -> str:
        """First group of the first line that matches."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            for line in list(self.lines):
                if found := re.search(pattern, line):
                    return found[1]
            time.sleep(0.01)
        raise AssertionError("".join(self.lines))

    def ready(self) -> None:
        self.wait_for(r"(listening on)")

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, trust_env=False)

    def open(self, number: int, **changes: object) -> httpx.Response:
        message = opening(pair_id=None, **changes)  # type: ignore[arg-type]
        return httpx.put(
            f"{self.url}/v1/sessions/{number:032x}", content=encode(message), trust_env=False
        )

    def signal_and_wait(self, number: int, seconds: float) -> int:
        self.process.send_signal(number)
        return self.process.wait(seconds)


@contextlib.contextmanager
def running(*options: str, loading: float = 0.0, per_pass: float = 0.0) -> Iterator[Running]:
    code = SLOW.format(loading=loading, per_pass=per_pass)
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "toy:1", "--port", "0", *options],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Running(process)
    try:
        yield server
    finally:
        process.kill()
        process.wait()
        server.reader.join(5)
        assert process.stderr is not None
        process.stderr.close()


class Streaming(threading.Thread):
    """Reads a stream of the server alone to its end."""

    def __init__(self, server: Running, number: int, tokens: int) -> None:
        super().__init__(daemon=True)
        assert server.open(number, method="autoregressive", max_tokens=tokens).status_code == 200
        self._url = f"{server.url}/v1/sessions/{number:032x}"
        self.frames: list[Generated] = []
        self.start()
        end = time.monotonic() + 10
        while not self.frames:
            assert time.monotonic() < end
            time.sleep(0.01)

    def run(self) -> None:
        data = b""
        with (
            # A server that ends at once breaks the stream.
            contextlib.suppress(httpx.HTTPError),
            httpx.Client(trust_env=False) as client,
            client.stream("POST", f"{self._url}/generate", content=encode(Generate(0))) as reply,
        ):
            for part in reply.iter_bytes():
                data += part
                while len(data) >= 4 and len(data) >= (
                    end := 4 + int.from_bytes(data[:4], "little")
                ):
                    self.frames.append(decode(Generated, data[4:end], limit=MAX_REPLY_BODY))
                    data = data[end:]
        with contextlib.suppress(httpx.HTTPError):
            httpx.delete(self._url, trust_env=False)


def test_loading_serving_draining() -> None:
    with running("--drain-seconds", "60", loading=1.0, per_pass=0.02) as server:
        seen = server.get("/ready")
        assert seen.status_code == 503
        assert seen.json()["status"] == "loading"
        server.wait_for(r"(file 1 of 9)")
        assert "reading weights, file 1 of 9" in server.get("/ready").json()["detail"]
        assert server.get("/health").json()["status"] == "loading"
        assert server.get("/health").status_code == 200
        early = server.open(1, method="greedy")
        assert early.status_code == 503
        assert early.headers["retry-after"] == "1"
        assert early.json()["error"]["code"] == "server_away"

        server.ready()
        assert server.get("/ready").json()["status"] == "ready"
        stream = Streaming(server, 1, 100)

        server.process.send_signal(signal.SIGTERM)
        server.wait_for(r"(draining: 1 sessions)")
        assert server.get("/ready").json()["status"] == "draining"
        assert server.get("/ready").status_code == 503
        assert server.get("/health").status_code == 200
        late = server.open(2, method="greedy")
        assert late.status_code == 503
        assert late.headers["retry-after"] == "1"
        stream.join(20)
        assert stream.frames[-1].finish
        assert not any(frame.error for frame in stream.frames)
        # Its session is closed, so there is nothing to wait for.
        assert server.process.wait(5) == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_a_load_at_once(number: int, status: int) -> None:
    with running(loading=60) as server:
        server.wait_for(r"(file 1 of 9)")
        begin = time.monotonic()
        assert server.signal_and_wait(number, 5) == status
        assert time.monotonic() - begin < 2
        assert "Traceback" not in "".join(server.lines)


def test_after_the_drain_streams_are_told_and_a_verify_is_finished() -> None:
    with running("--drain-seconds", "0.3", "--no-warm-up", per_pass=0.5) as server:
        server.ready()
        stream = Streaming(server, 1, 4000)
        assert server.open(2, method="greedy").status_code == 200
        replies: list[httpx.Response] = []

        def verify() -> None:
            url = f"{server.url}/v1/sessions/{2:032x}/verify"
            body = encode(block(q=None))
            replies.append(httpx.post(url, content=body, timeout=20, trust_env=False))

        waiting = threading.Thread(target=verify)
        waiting.start()
        assert server.open(3, method="greedy").status_code == 200
        address = f"{server.url.replace('http', 'ws')}/v1/sessions/{3:032x}/stream"
        with connect(address, subprotocols=[Subprotocol(SUBPROTOCOL)], proxy=None) as line:
            line.send(frame(Up.VERIFY, 0, encode(block(q=None))))
            time.sleep(0.1)
            assert server.signal_and_wait(signal.SIGTERM, 10) == 0
            answer = line.recv(timeout=5)
        assert isinstance(answer, bytes)
        assert split(answer) == (Down.REPLY, 0)
        waiting.join(5)
        stream.join(5)
        assert stream.frames[-1].error == "server_away"
        assert not any(frame.error for frame in stream.frames[:-1])
        (reply,) = replies
        assert reply.status_code == 200
        assert decode(Verdict, reply.content, limit=MAX_REPLY_BODY).settled is not None


def test_json_lines_and_a_second_signal() -> None:
    options = ("--log-format", "json", "--log-level", "debug", "--drain-seconds", "60")
    with running(*options, per_pass=0.05) as server:
        server.ready()
        Streaming(server, 1, 5).join(10)
        stream = Streaming(server, 2, 4000)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(r"(draining)")
        begin = time.monotonic()
        assert server.signal_and_wait(signal.SIGTERM, 5) == 143
        assert time.monotonic() - begin < 2
        server.reader.join(5)
        stream.join(5)
        records = [json.loads(line) for line in server.lines]
    assert {"time", "level", "logger", "message"} <= set.intersection(*map(set, records))
    (generate,) = [r for r in records if str(r.get("route")).endswith("/generate")]
    assert generate["tokens"] == 5
    assert generate["session"] == "0" * 8
    assert generate["status"] == 200
    assert generate["seconds"] > 0
    assert records[-1]["message"] == "ended at once"
