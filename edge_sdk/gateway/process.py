"""The process of a gateway: its socket, signals, the end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from edge_sdk.errors import InvalidRequest, ServerUnavailable
from edge_sdk.gateway.pool import Pool

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_GRACE: Final = 3.0  # seconds for texts that are being written when the gateway ends
_CUT_OFF: Final = 2  # seconds for what they are told then
_KEEP_ALIVE: Final = 75  # seconds an idle connection is kept


class Process(uvicorn.Server):
    """Serves until a signal. Requests under way then have a moment to end, and those that are
    left are told that the gateway goes down; a second signal does not wait.

    Args:
        pool: of the app; closed when it ends.

    Attributes:
        interrupted: it was Ctrl-C that ended it.
    """

    def __init__(self, app: FastAPI, pool: Pool) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                ws="none",
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=_CUT_OFF,
            )
        )
        self._pool = pool
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self.interrupted = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals over for as long as it runs. uvicorn's own way sends them again at
        the end, which would make every end look like a failure."""
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.interrupted = self.interrupted or sig == signal.SIGINT
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end_soon)

    def _end_soon(self) -> None:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        else:
            self._hurry.set()

    async def _end(self) -> None:
        idle = asyncio.ensure_future(self._pool.drained())
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait((idle, hurry), timeout=_GRACE, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        await self._pool.aclose()
        # What was under way is now told so, each as its reply has it.
        await asyncio.wait((idle,), timeout=_CUT_OFF)
        idle.cancel()
        self.should_exit = True


def bound(host: str, port: int) -> socket.socket:
    """A socket bound before anything is loaded, so that a taken port is known at once.

    Raises:
        InvalidRequest: `host` is no address of this machine.
        ServerUnavailable: the port is taken, or not allowed.
    """
    try:
        if not host:
            raise OSError("no address")
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise InvalidRequest(
            f"--host {host[:80]!r} is not an address of this machine ({error}); take 127.0.0.1",
            field="host",
        ) from error
    # NOTE: asyncio sends small replies at once only on sockets made with IPPROTO_TCP.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ServerUnavailable(
            f"cannot listen on {host} port {port} ({error.strerror}); choose another --port, or 0 "
            f"for a free one"
        ) from error
    return listener


def only_this_machine(listener: socket.socket) -> bool:
    """Nobody else can reach it."""
    return ipaddress.ip_address(str(listener.getsockname()[0]).partition("%")[0]).is_loopback


def address_of(listener: socket.socket) -> str:
    """Where it listens, as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
