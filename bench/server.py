"""A `cosd serve` of our own, on a free loopback port, for as long as a block lasts."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx

from edge_sdk.errors import ServerUnavailable

GRACE_SECONDS: Final = 12.0  # the server itself allows requests under way 10 s
_START_SECONDS: Final = 300.0
_LISTENING = re.compile(r"listening on (http://[\w.:\[\]]+)")
_LOG_LINES: Final = 12


class ServerProcess:
    """A server in a process group of its own.

    Leaving the block stops it: SIGTERM, and SIGKILL after a grace. A terminal's Ctrl-C does
    not reach it, so that it ends after its client and not before; if this process is killed
    it ends by itself (`bench.guarded`).

    Args:
        target: what `cosd serve` takes.
        module: runs `cosd` and ends with this process.
        environment: variables besides those of this process.

    Attributes:
        url: its address, once ready.
        api_key: a key that only this process knows.
    """

    def __init__(
        self,
        target: str,
        *,
        module: str = "bench.guarded",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.url = ""
        self.api_key = secrets.token_hex(16)
        self._target = target
        self._module = module
        self._environment = dict(environment or {})
        self._log = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        handle, name = tempfile.mkstemp(prefix="cosd-serve-", suffix=".log")
        self._log = Path(name)
        command = [sys.executable, "-m", self._module, "serve", self._target]
        command += ["--host", "127.0.0.1", "--port", "0", "--log-level", "info"]
        with os.fdopen(handle, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=os.environ | self._environment | {"COSD_API_KEYS": self.api_key},
                # Found from any folder: the parent's import path is the child's.
                cwd=Path(__file__).resolve().parents[1],
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def process_id(self) -> int:
        return -1 if self._process is None else self._process.pid

    def wait_ready(self, tell: Callable[[str], None] = lambda line: None) -> None:
        """Wait until it answers `/ready`.

        Args:
            tell: gets the latest line of its log.

        Raises:
            ServerUnavailable: it died, with the end of its log, or took too long.
        """
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            lines = self._lines()
            if self._process is None or self._process.poll() is not None:
                raise ServerUnavailable(
                    "the server ended before it was ready; the end of its log says why:\n"
                    + "\n".join(lines[-_LOG_LINES:])
                )
            if lines:
                tell(lines[-1])
            found = _LISTENING.search("\n".join(lines))
            if found is not None and _answers(found[1]):
                self.url = found[1]
                return
            time.sleep(0.1)
        raise ServerUnavailable(
            f"the server was not ready within {_START_SECONDS:g} s; the end of its log:\n"
            + "\n".join(self._lines()[-_LOG_LINES:])
        )

    def stop(self) -> None:
        """End it and wait until it is gone. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            self._signal(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
        finally:
            # Also reached by a second Ctrl-C during the grace.
            if process.poll() is None:
                self._signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
                process.wait()
            if process.stdin is not None:
                process.stdin.close()
            self._log.unlink(missing_ok=True)

    def _signal(self, process: subprocess.Popen[bytes], number: int) -> None:
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)

    def _lines(self) -> list[str]:
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=5.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
