"""A real server with a real draft to download, and the app in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cosd_app.controller import Controller
from cosd_app.keys import FileKeyStore
from cosd_app.state import State
from cosd_app.storage import Storage
from edge_sdk import Retry, Timeouts

if TYPE_CHECKING:
    # The browser's tests run where no server can be imported.
    from harness.serving import Serving

KEY = "key-of-the-phone"


class App:
    """A controller with its folder; may be made anew as after a restart of the app."""

    def __init__(self, folder: Path) -> None:
        self.storage = Storage(folder)
        self.keys = FileKeyStore(self.storage.key_file)
        self.low = False

    @asynccontextmanager
    async def opened(
        self, seen: Callable[[State], None] | None = None
    ) -> AsyncIterator[Controller]:
        controller = Controller(
            self.storage,
            self.keys,
            on_change=seen,
            retry=Retry(attempts=3, first=0.01, longest=0.05),
            timeouts=Timeouts(connect=2, reply=10, setup=10),
            low=lambda: self.low,
        )
        try:
            await controller.start()
            yield controller
        finally:
            await controller.aclose()


@pytest.fixture(scope="session")
def draft_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A draft that often agrees with the target."""
    from harness.draft_folder import write_draft
    from harness.phone_server import phone_target

    return write_draft(tmp_path_factory.mktemp("exports") / "tiny", phone_target(0))


@pytest.fixture
def server(draft_folder: Path) -> Iterator[Serving]:
    """The toy target behind a key, offering the draft."""
    from harness.phone_server import phone_target
    from harness.serving import Serving

    drafts = (("tiny", draft_folder),)
    with Serving(lambda: phone_target(0.005), keys=[KEY], drafts=drafts) as serving:
        yield serving


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(tmp_path / "app")


@pytest.fixture
async def ready(app: App, server: Serving) -> AsyncIterator[Controller]:
    """An app that is set up: server, key and draft."""
    async with app.opened() as controller:
        await controller.set_server(server.url, KEY)
        await controller.download("tiny")
        assert controller.state.problem is None, controller.state.problem
        yield controller
