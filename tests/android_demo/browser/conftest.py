"""A real server that can be killed, the app behind flet-web, and a headless browser.

These run in the environment of Flet and Playwright (`make test-android`); the server runs in
the project's own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from cosd_app.controller import Controller
from cosd_app.keys import FileKeyStore
from cosd_app.storage import Storage

ROOT = Path(__file__).parents[3]
BROWSER = ROOT / "android_demo" / "browser.py"
KEY = "key-of-the-phone"
SERVER_PYTHON = Path(os.environ.get("COSD_SERVER_PYTHON", ROOT / ".venv" / "bin" / "python"))
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# The web build of Flet asks for this by itself; on a phone it is inside the app.
_OF_FLET = "https://cdn.jsdelivr.net/npm/@rive-app/"


class ToyServer:
    """`harness.phone_server` as a process on a port that stays the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = int(found.getsockname()[1])
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def draft(self) -> Path:
        return self.folder / "tiny"

    def start(self) -> None:
        paths = f"{ROOT / 'tests'}{os.pathsep}{ROOT}"
        self._process = subprocess.Popen(
            [str(SERVER_PYTHON), "-m", "harness.phone_server", self.folder, str(self.port), KEY],
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == str(self.port), "it does not start"

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyServer]:
    server = ToyServer(tmp_path_factory.mktemp("drafts"))
    server.start()
    yield server
    server.kill()


class Screen:
    """The app as somebody sees it who cannot see: by what is spoken."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.elsewhere: list[str] = []

    async def open(self, url: str) -> Self:
        self.page.on("request", self._note(url))
        await self.page.goto(url)
        placeholder = "flt-semantics-placeholder"
        await self.page.wait_for_selector(placeholder, state="attached", timeout=60_000)
        await self.page.evaluate(f"document.querySelector('{placeholder}').click()")
        await self.until(lambda spoken: "Write" in spoken)
        return self

    def _note(self, url: str) -> Callable[[Any], None]:
        def note(request: Any) -> None:
            own = (url, url.replace("http", "ws", 1), "data:", "blob:")
            if not request.url.startswith((*own, _OF_FLET)):
                self.elsewhere.append(request.url)

        return note

    async def spoken(self) -> list[str]:
        """What a screen reader finds, in order."""
        found: list[str] = await self.page.evaluate(
            """Array.from(document.querySelectorAll('flt-semantics'))
            .filter(e => !e.querySelector('flt-semantics'))
            .map(e => e.querySelector('input,textarea')?.getAttribute('aria-label')
                 ?? e.getAttribute('aria-label') ?? e.textContent)"""
        )
        return [text for text in found if text]

    async def until(self, holds: Callable[[list[str]], bool], seconds: float = 30.0) -> list[str]:
        """Wait until what is spoken is as it should be."""
        end = asyncio.get_running_loop().time() + seconds
        while True:
            spoken = await self.spoken()
            if holds(spoken):
                return spoken
            assert asyncio.get_running_loop().time() < end, spoken
            await asyncio.sleep(0.05)

    async def text(self) -> str:
        """The text that is or was written."""
        found: str = await self.page.evaluate(
            """(() => { const e = document.querySelector('[flt-semantics-identifier="text"]');
            return e ? (e.getAttribute('aria-label') ?? e.textContent) : '' })()"""
        )
        return found

    async def tap(self, locator: Any) -> None:
        """A finger on the middle of something."""
        await locator.wait_for(state="attached", timeout=20_000)
        box = await locator.bounding_box()
        assert box is not None
        await self.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    async def press(self, name: str) -> None:
        await self.tap(self.page.get_by_role("button", name=name, exact=True))

    async def go(self, name: str) -> None:
        await self.tap(self.page.get_by_role("tab", name=name))
        wanted = "Connect" if name == "Settings" else "Prompt"
        await self.until(lambda spoken: wanted in spoken or "Message" in spoken)

    async def type(self, label: str, text: str) -> None:
        """Keys into a field. Flet does not see what is put into it otherwise."""
        await self.tap(self.page.get_by_label(label, exact=True))
        await asyncio.sleep(0.3)  # Flutter moves its one text field there
        await self.page.keyboard.type(text, delay=15)
        await asyncio.sleep(0.2)

    async def brightness(self, path: Path) -> float:
        """Mean of what is seen, 0 to 255; keeps the picture."""
        picture = await self.page.screenshot(path=path)
        shown = await self.page.context.new_page()
        try:
            await shown.goto("about:blank")
            source = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
            mean: float = await shown.evaluate(
                """async source => { const image = new Image(); image.src = source;
                await image.decode(); const canvas = document.createElement('canvas');
                canvas.width = image.width; canvas.height = image.height;
                const context = canvas.getContext('2d'); context.drawImage(image, 0, 0);
                const data = context.getImageData(0, 0, image.width, image.height).data;
                let sum = 0; for (let i = 0; i < data.length; i += 4)
                    sum += data[i] + data[i + 1] + data[i + 2];
                return sum / (data.length / 4 * 3) }""",
                source,
            )
        finally:
            await shown.close()
        return mean


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The app's folder, empty."""
    return tmp_path / "app"


@pytest.fixture
async def set_up(data: Path, running: ToyServer) -> Callable[..., Any]:
    """Sets the app up before it is opened: server, key, draft and further choices."""

    async def prepare(**choices: Any) -> None:
        storage = Storage(data)
        controller = Controller(storage, FileKeyStore(storage.key_file))
        try:
            await controller.set_server(running.url, KEY)
            await controller.download("tiny")
            controller.choose(**choices)
            assert controller.state.problem is None, controller.state.problem
        finally:
            await controller.aclose()

    return prepare


@pytest.fixture
def app_url(data: Path) -> Iterator[Callable[[], str]]:
    """Starts the app and returns its address."""
    with contextlib.ExitStack() as stack:

        def start() -> str:
            process = subprocess.Popen(
                [sys.executable, BROWSER, "--port", "0", "--data", data],
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(_end, process)
            assert process.stdout is not None
            for line in process.stdout:
                if "http://" in line:
                    return line.split()[2]
            raise AssertionError("the app does not start")

        yield start


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(15)
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture
async def opened(app_url: Callable[[], str]) -> AsyncIterator[Callable[..., Any]]:
    """Opens the app in a browser as wide as a phone."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(_ARGUMENTS))

        async def open_screen(**options: Any) -> Screen:
            size = {"width": 412, "height": 860}
            page = await (await browser.new_context(viewport=size, **options)).new_page()
            return await Screen(page).open(app_url())

        yield open_screen
        await browser.close()
