"""The app in a browser, through flet-web, in front of a real server: `make android-demo`.

The app's Python runs here as it does on the phone; the browser only shows the screen. Everything
listens on this machine alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import uvicorn

_SOURCE: Final = Path(__file__).parent / "src"
_READY_SECONDS: Final = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the app until Ctrl-C; returns the exit status."""
    given = _parser().parse_args(arguments)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_signals())
        data = given.data or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="cosd-phone-"))
        )
        os.environ["FLET_APP_STORAGE_DATA"] = str(data)
        try:
            if given.cosd is not None:
                _serve(stack, given.cosd)
            _show(given.port)
        except KeyboardInterrupt:
            pass
        except _Failed as error:
            print(error, file=sys.stderr)
            return 1
    return 0


class _Failed(Exception):
    """A sentence for whoever started this."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="The phone app in a browser.")
    parser.add_argument("--port", type=int, default=8550, help="of the app; 0 takes a free one")
    parser.add_argument("--data", type=Path, help="folder of the app; by default one that goes")
    parser.add_argument(
        "--cosd", type=Path, help="the command cosd: prepare the default pair and serve it"
    )
    return parser


def _serve(stack: contextlib.ExitStack, cosd: Path) -> None:
    """Prepare and serve the default pair, and wait until it is ready."""
    draft = _printed(cosd, "prepare", "smollm2-135m", "--draft")
    target = _printed(cosd, "prepare", "gemma3-270m")
    key, port = secrets.token_urlsafe(12), _free_port()
    server = subprocess.Popen(
        [str(cosd), "serve", target, "--port", str(port), "--drafts", f"smollm2-135m={draft}"],
        env={**os.environ, "COSD_API_KEYS": key, "OMP_WAIT_POLICY": "PASSIVE"},
    )
    stack.callback(_end, server)
    url = f"http://127.0.0.1:{port}"
    _wait(server, url)
    print(
        f"\nIn the app, open Settings and enter\n  server address  {url}\n  key             {key}"
    )


def _printed(cosd: Path, *arguments: str) -> str:
    done = subprocess.run([str(cosd), *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise _Failed(f"`cosd {' '.join(arguments)}` failed; it says why above")
    return done.stdout.strip().splitlines()[-1]


def _wait(server: subprocess.Popen[bytes], url: str) -> None:
    with httpx.Client(timeout=5) as client:
        for _ in range(int(_READY_SECONDS * 2)):
            if server.poll() is not None:
                raise _Failed("the server ended; it says why above")
            with contextlib.suppress(httpx.HTTPError):
                if client.get(f"{url}/ready").status_code == 200:
                    return
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(0.5)
    raise _Failed("the server is not ready after ten minutes")


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(15)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _show(port: int) -> None:
    """Serve the app with its fonts and canvas: nothing is fetched from elsewhere."""
    sys.path.insert(0, str(_SOURCE))
    import flet as ft

    from view.app import open_app

    app: Any = ft.run(open_app, export_asgi_app=True, no_cdn=True)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)  # before the address is told
    except OSError as error:
        raise _Failed(f"port {port} is taken ({error.strerror}); give another --port") from error
    print(f"\nThe app: http://127.0.0.1:{listener.getsockname()[1]}  (Ctrl-C ends it)", flush=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM ends like Ctrl-C, so that the server does too."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
