"""Drafts that a server offers, as the app sees them: bounded and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from edge_sdk.draft.manifest import MANIFEST_NAME
from edge_sdk.errors import ProtocolError

MAX_BYTES: Final = 16 << 30  # of one draft
MAX_FILES: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to download: name, size in bytes, SHA-256 (hex)."""

    name: str
    bytes: int
    sha256: str

    @classmethod
    def read(cls, data: Any) -> Self:
        """Read an entry of an untrusted server.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        name, size, sha256 = data["name"], data["bytes"], data["sha256"]
        if not (_plain(name) and type(size) is int and 0 <= size <= MAX_BYTES):
            raise ValueError(name)
        if not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
            raise ValueError(name)
        return cls(name, size, sha256)


@dataclass(frozen=True, slots=True)
class RemoteDraft:
    """A draft on the server.

    Attributes:
        name: under which the server offers it.
        model: short name of the model.
        files: the manifest last, since a folder with one is a whole draft.
    """

    name: str
    model: str
    files: tuple[RemoteFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def sha256(self) -> str:
        """Of the manifest, which stands for the draft."""
        return self.files[-1].sha256

    @classmethod
    def read(cls, data: Any) -> Self:
        """Read a card of an untrusted server.

        Raises:
            ProtocolError: it is none, or names files that cannot be.
        """
        try:
            name, model = data["name"], data["model"]
            files = [RemoteFile.read(file) for file in data["files"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                "the server offers a draft with names, sizes or digests that cannot be; nothing "
                "was downloaded"
            ) from error
        names = [file.name for file in files]
        good = (
            _plain(name)
            and isinstance(model, str)
            and len(files) <= MAX_FILES
            and len(set(names)) == len(names)
            and names.count(MANIFEST_NAME) == 1
            and sum(file.bytes for file in files) <= MAX_BYTES
        )
        if not good:
            raise ProtocolError(
                f"the server offers draft {str(name)[:80]!r} with a list of files that cannot be; "
                f"nothing was downloaded"
            )
        files.sort(key=lambda file: file.name == MANIFEST_NAME)
        return cls(name, model[:80], tuple(files))


def read_list(data: Any) -> tuple[RemoteDraft, ...]:
    """The reply to `GET /v1/drafts`.

    Raises:
        ProtocolError: it is none.
    """
    entries = data.get("drafts") if isinstance(data, Mapping) else None
    if not isinstance(entries, list) or len(entries) > 1000:
        raise ProtocolError("the server's reply to /v1/drafts is no list of drafts")
    return tuple(RemoteDraft.read(entry) for entry in entries)


def _plain(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None
