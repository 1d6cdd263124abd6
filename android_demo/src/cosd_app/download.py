"""Downloading a draft: it goes on where it stopped, and every byte is checked."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx

from cosd_app.drafts import RemoteDraft, RemoteFile, read_list
from cosd_app.partial_file import PartialFile
from cosd_app.state import Progress
from cosd_app.storage import Storage
from edge_sdk.draft.manifest import Manifest
from edge_sdk.errors import (
    ConnectionFailed,
    DownloadFailed,
    OutOfSpace,
    ProtocolError,
    ServerUnavailable,
    TimedOut,
)
from edge_sdk.transport.address import KeySource, checked_url
from edge_sdk.transport.refusal import refusal
from edge_sdk.waiting import Retry

log = logging.getLogger(__name__)

_SPARE: Final = 32 << 20  # bytes of disk that stay free
_MAX_LIST: Final = 4 << 20
_MAX_ERROR: Final = 64 << 10


class Downloads:
    """Drafts of one server.

    Args:
        server: its address.
        key: bearer key, or None.
        storage: where drafts go.
        tls: what tells the right server from another.
        retry: when a broken transfer is taken up again; tries count from the last byte gained.
        transport: what carries requests, by default the network.
    """

    def __init__(
        self,
        server: str,
        *,
        key: str | None,
        storage: Storage,
        tls: ssl.SSLContext,
        retry: Retry | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url = checked_url(server)
        self._keys = KeySource(key)
        self._storage = storage
        self._retry = retry or Retry()
        self._http = httpx.AsyncClient(
            verify=tls, timeout=httpx.Timeout(30.0, connect=10.0), transport=transport
        )

    async def aclose(self) -> None:
        """Close connections. Idempotent."""
        await self._http.aclose()

    async def offered(self) -> tuple[RemoteDraft, ...]:
        """What the server offers.

        Raises:
            CosdError: of the class that says what went wrong.
        """
        path = "/v1/drafts"
        async with self._reply(path) as reply:
            data = b""
            async for part in reply.aiter_bytes():
                data += part
                if len(data) > _MAX_LIST:
                    raise ProtocolError(f"the reply to {path} is over {_MAX_LIST} bytes")
        try:
            return read_list(json.loads(data))
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"the reply to {path} is no JSON") from error

    async def fetch(self, draft: RemoteDraft, progress: Callable[[Progress], None]) -> Path:
        """Download a draft; what an earlier try left is used. Cancelling keeps what is here.

        Args:
            progress: called as bytes come, and once at the end.

        Raises:
            OutOfSpace: the device has too little room.
            DownloadFailed: the transfer broke too often, or bytes came wrong.
            CosdError: what the server refused.
        """
        work = self._storage.partial(draft.name)
        before = 0
        try:
            await asyncio.to_thread(_make_room, work, draft)
            for file in draft.files:
                here = await asyncio.to_thread(PartialFile, work / file.name, file)

                def advanced(here: PartialFile = here, before: int = before) -> None:
                    progress(Progress(before + here.size, draft.bytes))

                advanced()
                path = f"/v1/drafts/{draft.name}/{file.name}"
                await self._file(path, file, here, advanced)
                before += file.bytes
        except OSError as error:
            raise OutOfSpace(
                f"the draft cannot be written to {work} ({error.strerror}); what is here is kept"
            ) from error
        folder = self._storage.draft(draft.name)
        await asyncio.to_thread(_install, work, folder)
        progress(Progress(draft.bytes, draft.bytes))
        return folder

    async def _file(
        self, path: str, file: RemoteFile, here: PartialFile, advanced: Callable[[], None]
    ) -> None:
        failures, best = 0, here.size
        while not here.whole:
            try:
                await self._transfer(path, file, here, advanced)
            except (ConnectionFailed, TimedOut, ServerUnavailable) as error:
                failures = 1 if here.size > best else failures + 1
                best = here.size
                if failures >= self._retry.attempts:
                    raise DownloadFailed(
                        f"{file.name} broke off at {here.size} of {file.bytes} bytes "
                        f"({error.message}); what is here is kept"
                    ) from error
                log.info("%s goes on at byte %d: %s", file.name, here.size, error)
                await asyncio.sleep(self._retry.delay(failures))
        await asyncio.to_thread(here.check)

    async def _transfer(
        self, path: str, file: RemoteFile, here: PartialFile, advanced: Callable[[], None]
    ) -> None:
        headers = {}
        if here.size:
            headers = {"range": f"bytes={here.size}-", "if-range": f'"{file.sha256}"'}
        async with self._reply(path, headers) as reply:
            if here.size and not _continues(reply, here.size):
                # Ranges are not for everybody in between; what comes is the whole file.
                here.clear()
            async for part in reply.aiter_bytes():
                await asyncio.to_thread(here.append, part)
                advanced()
        if not here.whole:
            raise ConnectionFailed(f"the transfer ended at byte {here.size}")

    @asynccontextmanager
    async def _reply(
        self, path: str, headers: dict[str, str] | None = None
    ) -> AsyncIterator[httpx.Response]:
        sent = {**(headers or {}), **await self._keys.headers(), "accept-encoding": "identity"}
        try:
            async with self._http.stream("GET", self._url + path, headers=sent) as reply:
                if reply.status_code not in (200, 206):
                    data = b""
                    async for part in reply.aiter_bytes():
                        data = (data + part)[:_MAX_ERROR]
                    raise refusal(self._url, path, reply.status_code, reply.headers, data)
                yield reply
        except httpx.TimeoutException as error:
            raise TimedOut(f"{self._url} did not answer in time") from error
        except httpx.HTTPError as error:
            raise ConnectionFailed(
                f"{self._url} cannot be reached ({str(error) or type(error).__name__})"
            ) from error


def _continues(reply: httpx.Response, at: int) -> bool:
    given = reply.headers.get("content-range", "")
    return reply.status_code == 206 and given.startswith(f"bytes {at}-")


def _make_room(work: Path, draft: RemoteDraft) -> None:
    work.mkdir(parents=True, exist_ok=True)
    wanted = {file.name for file in draft.files}
    for path in work.iterdir():
        if path.name not in wanted:
            path.unlink()
    here = sum(path.stat().st_size for path in work.iterdir())
    free = shutil.disk_usage(work).free
    missing = draft.bytes - here
    if missing + _SPARE > free:
        raise OutOfSpace(
            f"draft {draft.name!r} needs {missing >> 20} MiB more and the device has "
            f"{free >> 20} MiB free; make room first"
        )


def _install(work: Path, folder: Path) -> None:
    """Put a complete draft in place of the one before.

    Raises:
        ModelFolderInvalid: the files are those of the server, but no draft.
        OutOfSpace: it cannot be moved.
    """
    Manifest.read(work).check_files(work)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        old = work.with_name(f"{work.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        work.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise OutOfSpace(f"the draft cannot be put at {folder} ({error.strerror})") from error
