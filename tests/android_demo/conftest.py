"""A real server with a real draft to download, and the app in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from harness.draft_folder import write_draft
from harness.serving import QUICK, WORDS, Serving

from cosd_app.controller import Controller
from cosd_app.keys import FileKeyStore
from cosd_app.state import State
from cosd_app.storage import Storage
from edge_sdk import Timeouts
from edge_sdk.draft.toy_table import ToyTable
from edge_sdk.draft.toy_text import toy_byte_vocabulary
from server_app.target.toy import ToyTarget

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
            retry=QUICK,
            timeouts=Timeouts(connect=2, reply=10, setup=10),
            low=lambda: self.low,
        )
        try:
            await controller.start()
            yield controller
        finally:
            await controller.aclose()


def target() -> ToyTarget:
    """Texts of printable characters that do not end by themselves."""
    vocabulary = toy_byte_vocabulary(WORDS)
    bias = {i: -6.0 for i in range(256) if not 32 <= i < 127}
    bias |= dict.fromkeys(vocabulary.end_ids, -30.0)
    table = ToyTable.random(1, len(vocabulary), order=1).biased(bias)
    return ToyTarget.from_table(vocabulary, table, seconds_per_pass=0.005)


@pytest.fixture(scope="session")
def draft_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A draft that often agrees with the target."""
    return write_draft(tmp_path_factory.mktemp("exports") / "tiny", target())


@pytest.fixture
def server(draft_folder: Path) -> Iterator[Serving]:
    """The toy target behind a key, offering the draft."""
    with Serving(target, keys=[KEY], drafts=(("tiny", draft_folder),)) as serving:
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
