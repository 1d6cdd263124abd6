"""The key on a phone: in the system's own secure storage (Android Keystore)."""

from __future__ import annotations

from typing import Any, Final, Protocol

from flet_secure_storage import SecureStorage

from cosd_app.keys import KeyStore
from edge_sdk.errors import PreparationError
from edge_sdk.transport.address import checked_key

_NAME: Final = "cosd.api_key"


class Entries(Protocol):
    """What is used of `SecureStorage`, whose package has no types."""

    async def get(self, key: str) -> str | None: ...

    async def set(self, key: str, value: Any) -> None: ...

    async def remove(self, key: str) -> None: ...


class SecureKeyStore(KeyStore):
    """One entry of the system's secure storage. Made within a page."""

    def __init__(self) -> None:
        self._storage: Entries = SecureStorage()

    async def load(self) -> str | None:
        try:
            value = await self._storage.get(_NAME)
        except Exception as error:
            raise PreparationError(
                f"the phone's secure storage cannot be read ({type(error).__name__}); enter the "
                f"key again"
            ) from error
        return value or None

    async def save(self, key: str) -> None:
        checked_key(key)
        try:
            await self._storage.set(_NAME, key)
        except Exception as error:
            # Its text may quote the key.
            raise PreparationError(
                f"the phone's secure storage does not keep the key ({type(error).__name__})"
            ) from error

    async def clear(self) -> None:
        try:
            await self._storage.remove(_NAME)
        except Exception as error:
            raise PreparationError(
                f"the phone's secure storage does not delete the key ({type(error).__name__})"
            ) from error
