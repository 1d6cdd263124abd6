"""Draft folders that devices may download: an allow-list, one setting (`drafts`)."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel

from edge_sdk.draft.manifest import MANIFEST_NAME, FileEntry, Manifest
from edge_sdk.errors import InvalidRequest, ModelFolderInvalid, NotFound, ServerUnavailable
from server_app.auth import owner_of

log = logging.getLogger(__name__)
router = APIRouter()
Owner = Annotated[str, Depends(owner_of)]

_RANGE: Final = re.compile(r"bytes=(\d{1,15})-(\d{0,15})")


class DraftFile(BaseModel):
    """A file of a draft: what to download, and how to know that it arrived whole."""

    name: str
    bytes: int
    sha256: str


class DraftCard(BaseModel):
    """A draft as a device needs to know it. `bytes` is the sum over `files`; `sha256` is that
    of its manifest, which lists every other file: the same value means the same draft."""

    name: str
    model: str
    source: str
    bits: int
    context: int
    bytes: int
    sha256: str
    files: list[DraftFile]


class DraftList(BaseModel):
    """Every draft that this server offers."""

    drafts: list[DraftCard]


@dataclass(frozen=True, slots=True)
class DraftFolder:
    """An exported folder as it lies on disk now.

    Attributes:
        document: bytes of `manifest.json`.
        files: every file by name, the manifest included.
    """

    path: Path
    manifest: Manifest
    document: bytes
    files: Mapping[str, FileEntry]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read and check a folder; sizes are compared, digests are left to who downloads.

        Raises:
            ModelFolderInvalid: it is no exported folder, a file is missing or truncated, or is a
                link that leads out of the folder.
        """
        manifest = Manifest.read(path)
        manifest.check_files(path)
        root = path.resolve()
        for name in (MANIFEST_NAME, *manifest.files):
            if not (path / name).resolve().is_relative_to(root):
                raise ModelFolderInvalid(
                    f"{path / name} is a link that leads out of the folder; put the file itself "
                    f"there"
                )
        try:
            document = (path / MANIFEST_NAME).read_bytes()
        except OSError as error:
            raise ModelFolderInvalid(
                f"{path / MANIFEST_NAME} cannot be read ({error.strerror})"
            ) from error
        entry = FileEntry(len(document), hashlib.sha256(document).hexdigest())
        return cls(path, manifest, document, {MANIFEST_NAME: entry, **manifest.files})

    def card(self, name: str) -> DraftCard:
        """The folder under the name that the operator gave it."""
        return DraftCard(
            name=name,
            model=self.manifest.name,
            source=self.manifest.source,
            bits=self.manifest.bits,
            context=self.manifest.context,
            bytes=sum(entry.bytes for entry in self.files.values()),
            sha256=self.files[MANIFEST_NAME].sha256,
            files=[
                DraftFile(name=file, bytes=entry.bytes, sha256=entry.sha256)
                for file, entry in self.files.items()
            ],
        )


class DraftFolders:
    """The allow-list. A request names an entry and never a path.

    Args:
        pairs: names and folders, as of the setting.

    Raises:
        InvalidRequest: a name comes twice.
        ModelFolderInvalid: a folder is none that `cosd export` made.
    """

    def __init__(self, pairs: Sequence[tuple[str, Path]] = ()) -> None:
        self._paths: dict[str, Path] = {}
        for name, path in pairs:
            if name in self._paths:
                raise InvalidRequest(
                    f"setting drafts has {name!r} twice; give every folder a name of its own",
                    field="drafts",
                )
            DraftFolder.read(path)
            self._paths[name] = path

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def read(self, name: str) -> DraftFolder:
        """A folder of the list, read anew since an export may have replaced it.

        Raises:
            NotFound: the list does not have it.
            ServerUnavailable: the folder is not usable at present; the log says why, the reply
                does not, since paths of this machine are nobody's business.
        """
        path = self._paths.get(name)
        if path is None:
            there = ", ".join(self._paths) or "none; the server's --drafts lists them"
            raise NotFound(f"there is no draft {name[:80]!r} here; this server offers {there}")
        try:
            return DraftFolder.read(path)
        except ModelFolderInvalid as error:
            log.error("draft %s cannot be offered: %s", name, error)
            raise ServerUnavailable(
                f"draft {name!r} cannot be read on the server at present; its log says why",
                retry_after=30,
            ) from error


@router.get("/v1/drafts", summary="Drafts that devices may download")
async def drafts(owner: Owner, request: Request) -> DraftList:
    folders: DraftFolders = request.app.state.drafts
    return DraftList(drafts=await run_in_threadpool(_cards, folders))


@router.get("/v1/drafts/{name}", summary="Files of a draft, with sizes and SHA-256")
async def draft(owner: Owner, request: Request, name: str) -> DraftCard:
    folders: DraftFolders = request.app.state.drafts
    return (await run_in_threadpool(folders.read, name)).card(name)


@router.get(
    "/v1/drafts/{name}/{file}",
    summary="A file of a draft; one range of bytes may be asked for",
    response_class=Response,
)
async def draft_file(owner: Owner, request: Request, name: str, file: str) -> Response:
    folders: DraftFolders = request.app.state.drafts
    folder = await run_in_threadpool(folders.read, name)
    entry = folder.files.get(file)
    if entry is None:
        raise NotFound(
            f"draft {name!r} has no file {file[:80]!r}; it has {', '.join(folder.files)}"
        )
    tag = f'"{entry.sha256}"'
    _settle_range(request, size=entry.bytes, tag=tag)
    headers = {"etag": tag, "cache-control": "private, no-transform", "accept-ranges": "bytes"}
    return FileResponse(folder.path / file, headers=headers, media_type="application/octet-stream")


def _cards(folders: DraftFolders) -> list[DraftCard]:
    cards = []
    for name in folders:
        try:
            cards.append(folders.read(name).card(name))
        except ServerUnavailable:
            continue  # the log has it, and the others are fine
    return cards


def _settle_range(request: Request, *, size: int, tag: str) -> None:
    """Leave `Range` in the request only if it is one range of this very file (RFC 9110: any
    other may be ignored, and the whole file is sent).

    Raises:
        HTTPException: 416, the range begins behind the end.
    """
    given = request.headers.get("range")
    if given is None:
        return
    condition = request.headers.get("if-range")
    found = _RANGE.fullmatch(given.strip().lower())
    usable = found is not None and (condition is None or condition == tag)
    if found is not None and usable:
        first, last = int(found[1]), int(found[2] or size)
        if first >= size:
            raise HTTPException(
                416,
                f"the file has {size} bytes; a range from {first} on is behind its end",
                headers={"content-range": f"bytes */{size}"},
            )
        usable = first <= last
    if not usable:
        request.scope["headers"] = [
            (name, value) for name, value in request.scope["headers"] if name != b"range"
        ]
