"""Downloads that break, go on, and come from servers that cannot be trusted."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness.serving import QUICK, Faults, FaultyTransport, Serving

from cosd_app.download import Downloads
from cosd_app.state import Progress
from cosd_app.storage import Storage
from edge_sdk.errors import (
    CosdError,
    DownloadFailed,
    ModelFolderInvalid,
    OutOfSpace,
    ProtocolError,
    Unauthorized,
)

KEY = "key-of-the-phone"
DATA = "model.onnx.data"


def ignore(progress: Progress) -> None:
    """Nobody looks."""


@asynccontextmanager
async def downloads(
    server: Serving | str,
    storage: Storage,
    transport: httpx.AsyncBaseTransport | None = None,
    key: str = KEY,
) -> AsyncIterator[Downloads]:
    url = server if isinstance(server, str) else server.url
    made = Downloads(
        url,
        key=key,
        storage=storage,
        tls=ssl.create_default_context(),
        retry=QUICK,
        transport=transport,
    )
    try:
        yield made
    finally:
        await made.aclose()


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "app")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def same(a: Path, b: Path) -> bool:
    return contents(a) == contents(b)


async def test_a_transfer_that_breaks_goes_on(
    server: Serving, storage: Storage, draft_folder: Path
) -> None:
    """Every try brings something, so there are more of them than `Retry` allows in a row."""
    faults = Faults(DATA, ["cut", "lose", "cut", "refuse", "cut", "refuse", "cut"])
    network = FaultyTransport(faults, keep=40_000)
    seen: list[Progress] = []
    async with downloads(server, storage, network) as made:
        (draft,) = await made.offered()
        folder = await made.fetch(draft, seen.append)
    assert same(folder, draft_folder)
    assert not storage.partial("tiny").exists()
    done = [progress.done for progress in seen]
    assert done == sorted(done)  # nothing was fetched again
    assert seen[-1] == Progress(draft.bytes, draft.bytes)
    assert faults.seen == 8


async def test_a_server_that_stays_away(server: Serving, storage: Storage) -> None:
    faults = Faults(DATA, ["cut", *["refuse"] * 50])
    async with downloads(server, storage, FaultyTransport(faults, keep=1000)) as made:
        (draft,) = await made.offered()
        with pytest.raises(DownloadFailed, match="broke off at 1000 of") as error:
            await made.fetch(draft, ignore)
        assert "kept" in error.value.message
    assert (storage.partial("tiny") / DATA).stat().st_size == 1000
    assert storage.installed("tiny") is None


async def test_cancelling_keeps_what_is_here(server: Serving, storage: Storage) -> None:
    some = asyncio.Event()
    async with downloads(server, storage) as made:
        (draft,) = await made.offered()

        def progress(now: Progress) -> None:
            if now.done > 100_000:
                some.set()

        fetching = asyncio.create_task(made.fetch(draft, progress))
        await some.wait()
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        kept = sum(path.stat().st_size for path in storage.partial("tiny").iterdir())
        assert kept > 100_000
        first: list[Progress] = []
        await made.fetch(draft, first.append)
    assert any(progress.done >= kept for progress in first[:6])
    assert storage.installed("tiny") == draft.sha256


async def test_bytes_that_changed_on_the_device(
    server: Serving, storage: Storage, draft_folder: Path
) -> None:
    work = storage.partial("tiny")
    work.mkdir(parents=True)
    (work / DATA).write_bytes(b"x" * 5000)
    async with downloads(server, storage) as made:
        (draft,) = await made.offered()
        with pytest.raises(DownloadFailed, match="other bytes than its SHA-256"):
            await made.fetch(draft, ignore)
        assert same(await made.fetch(draft, ignore), draft_folder)


async def test_a_newer_export_takes_the_place_of_the_old(
    storage: Storage, draft_folder: Path, tmp_path: Path
) -> None:
    export = shutil.copytree(draft_folder, tmp_path / "export")
    with Serving(keys=[KEY], drafts=(("tiny", export),)) as server:
        async with downloads(server, storage) as made:
            (old,) = await made.offered()
            await made.fetch(old, ignore)
            path = export / "manifest.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "source": "newer"}))
            (new,) = await made.offered()
            assert storage.installed("tiny") == old.sha256 != new.sha256
            await made.fetch(new, ignore)
            assert storage.installed("tiny") == new.sha256
    assert sorted(p.name for p in storage.partial("tiny").parent.iterdir()) == []


async def test_too_little_room(
    server: Serving, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=33 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    async with downloads(server, storage) as made:
        (draft,) = await made.offered()
        await made.fetch(draft, ignore)  # 300 KB fit above the reserve
        usage = usage._replace(free=32 << 20)
        with pytest.raises(OutOfSpace, match="make room first"):
            await made.fetch(draft, ignore)


async def test_a_wrong_key(server: Serving, storage: Storage) -> None:
    async with downloads(server, storage, key="wrong") as made:
        with pytest.raises(Unauthorized):
            await made.offered()


def hostile(
    files: list[dict[str, Any]], bodies: dict[str, bytes], *, name: Any = "tiny"
) -> httpx.MockTransport:
    """A server that offers what it wants."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/drafts":
            card = {"name": name, "model": "m", "files": files}
            return httpx.Response(200, json={"drafts": [card]})
        body = bodies[request.url.path.rpartition("/")[2]]
        return httpx.Response(200, content=body)

    return httpx.MockTransport(answer)


def entry(name: Any, data: bytes = b"data", **changes: Any) -> dict[str, Any]:
    sha256 = hashlib.sha256(data).hexdigest()
    return {"name": name, "bytes": len(data), "sha256": sha256, **changes}


MANIFEST = entry("manifest.json")


@pytest.mark.parametrize(
    "files",
    [
        [],
        [entry("a")],  # no manifest
        [MANIFEST, MANIFEST],
        [MANIFEST, entry("../../evil")],
        [MANIFEST, entry("/etc/passwd")],
        [MANIFEST, entry(".hidden")],
        [MANIFEST, entry("a\\b")],
        [MANIFEST, entry(7)],
        [MANIFEST, entry("a", bytes=-1)],
        [MANIFEST, entry("a", bytes=True)],
        [MANIFEST, entry("a", bytes=1 << 50)],
        [MANIFEST, entry("a", bytes="4")],
        [MANIFEST, entry("a", sha256="A" * 64)],
        [MANIFEST, entry("a", sha256=None)],
        [MANIFEST, "a"],
        [MANIFEST, *[entry(f"f{i}") for i in range(100)]],
        7,
    ],
)
async def test_lists_that_cannot_be(storage: Storage, files: Any) -> None:
    async with downloads("http://x", storage, hostile(files, {})) as made:
        with pytest.raises(ProtocolError, match="nothing was downloaded"):
            await made.offered()
    assert not storage.folder.exists()


@pytest.mark.parametrize("name", ["..", "a/b", "", 7, ".x"])
async def test_names_that_cannot_be(storage: Storage, name: Any) -> None:
    async with downloads("http://x", storage, hostile([MANIFEST], {}, name=name)) as made:
        with pytest.raises(ProtocolError):
            await made.offered()


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"drafts": 1}', b'{"drafts": [[]]}', b"no json", b"x" * (5 << 20)]
)
async def test_replies_that_are_no_list(storage: Storage, body: bytes) -> None:
    network = httpx.MockTransport(lambda request: httpx.Response(200, content=body))
    async with downloads("http://x", storage, network) as made:
        with pytest.raises(ProtocolError):
            await made.offered()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"dat", DownloadFailed),  # breaks off
        (b"date", DownloadFailed),  # other bytes
        (b"data and more", DownloadFailed),
        (b"data", ModelFolderInvalid),  # as promised, but no manifest
    ],
)
async def test_files_that_are_not_what_was_promised(
    storage: Storage, body: bytes, error: type[CosdError]
) -> None:
    network = hostile([MANIFEST], {"manifest.json": body})
    async with downloads("http://x", storage, network) as made:
        (draft,) = await made.offered()
        with pytest.raises(error):
            await made.fetch(draft, ignore)
    assert storage.installed("tiny") is None
    assert not storage.draft("tiny").exists()


async def test_without_ranges_the_file_comes_whole(
    storage: Storage, draft_folder: Path, server: Serving
) -> None:
    bodies = contents(draft_folder)
    files = [entry(name, data) for name, data in bodies.items()]
    work = storage.partial("tiny")
    work.mkdir(parents=True)
    (work / DATA).write_bytes(bodies[DATA][:500])
    async with downloads("http://x", storage, hostile(files, bodies)) as made:
        (draft,) = await made.offered()
        assert same(await made.fetch(draft, ignore), draft_folder)
