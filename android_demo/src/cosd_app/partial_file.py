"""A file that is being downloaded, and what is known of it so far."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cosd_app.drafts import RemoteFile
from edge_sdk.errors import DownloadFailed


class PartialFile:
    """What an earlier try left, read and hashed, and what comes now.

    Args:
        path: on the device; its folder exists.
        file: what it must become.

    Attributes:
        size: bytes that are here.
    """

    def __init__(self, path: Path, file: RemoteFile) -> None:
        self._path = path
        self._file = file
        self._digest = hashlib.sha256()
        self.size = 0
        if path.exists() and path.stat().st_size > file.bytes:
            path.unlink()
        if path.exists():
            with path.open("rb") as data:
                while part := data.read(1 << 20):
                    self._digest.update(part)
                    self.size += len(part)
        else:
            path.touch()

    @property
    def whole(self) -> bool:
        """All bytes are here, right or wrong."""
        return self.size == self._file.bytes

    def append(self, part: bytes) -> None:
        """Add bytes.

        Raises:
            DownloadFailed: they are more than there should be; the file begins anew.
        """
        if self.size + len(part) > self._file.bytes:
            self.clear()
            raise DownloadFailed(
                f"more than the {self._file.bytes} bytes of {self._file.name} came; it was deleted"
            )
        with self._path.open("ab") as out:
            out.write(part)
        self._digest.update(part)
        self.size += len(part)

    def check(self) -> None:
        """Raises: DownloadFailed: the bytes are not those of the SHA-256; the file begins anew."""
        if self._digest.hexdigest() != self._file.sha256:
            self.clear()
            raise DownloadFailed(
                f"{self._file.name} came with other bytes than its SHA-256 promises; it was deleted"
            )

    def clear(self) -> None:
        """Begin anew."""
        self._path.write_bytes(b"")
        self._digest = hashlib.sha256()
        self.size = 0
