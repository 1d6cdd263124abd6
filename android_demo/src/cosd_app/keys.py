"""Where the server's key is kept. It is read to be sent, and never shown."""

from __future__ import annotations

import contextlib
import os
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

from edge_sdk.errors import PreparationError
from edge_sdk.transport.address import checked_key


class KeyStore(ABC):
    """One secret. The app's own on a phone is the system's (`view/secure_keys.py`)."""

    @abstractmethod
    async def load(self) -> str | None:
        """The key, or None if there is none."""

    @abstractmethod
    async def save(self, key: str) -> None:
        """Keep a key in place of the one before.

        Raises:
            InvalidRequest: no header can carry it.
            PreparationError: it cannot be kept.
        """

    @abstractmethod
    async def clear(self) -> None:
        """Forget it. Idempotent."""


class FileKeyStore(KeyStore):
    """A file that only its owner can read (mode 0600): for desktops and Termux, where the
    home folder is the user's own.

    Args:
        path: of the file; its folder is made when needed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> str | None:
        try:
            data = self._path.read_text("utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise PreparationError(
                f"the key in {self._path} cannot be read; delete the file and enter the key again"
            ) from error
        return data or None

    async def save(self, key: str) -> None:
        checked_key(key)
        try:
            _write_private(self._path, key)
        except OSError as error:
            raise PreparationError(
                f"the key cannot be kept in {self._path} ({error.strerror})"
            ) from error

    async def clear(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise PreparationError(
                f"the key in {self._path} cannot be deleted ({error.strerror})"
            ) from error


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # mkstemp makes it with mode 0600, so that it is never readable by others.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".key-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
