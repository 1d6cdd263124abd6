"""The server that is in use: its drafts, and the SDK's client of it."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import AsyncIterator

import certifi

from cosd_app.download import Downloads
from cosd_app.keys import KeyStore
from cosd_app.state import Choices
from cosd_app.storage import Storage
from edge_sdk import EdgeClient, Retry, Timeouts
from edge_sdk.decoding.registry import METHODS
from edge_sdk.errors import InvalidRequest
from edge_sdk.offline import OnLink
from edge_sdk.transport.address import checked_url


class Server:
    """What the controller asks a server for.

    Args:
        storage: the app's folder.
        keys: where the server's key is kept.
        on_link: called with False when the server does not answer any more, with True when it
            does again.
        retry, timeouts: of requests.
    """

    def __init__(
        self,
        storage: Storage,
        keys: KeyStore,
        *,
        on_link: OnLink,
        retry: Retry | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._storage = storage
        self._keys = keys
        self._on_link = on_link
        self._retry = retry or Retry()
        self._timeouts = timeouts or Timeouts()
        self._tls = _tls()
        self._client: EdgeClient | None = None
        self._drafts_with: str | None = None

    @property
    def connected_now(self) -> bool:
        """There is a client, and with it a draft in memory."""
        return self._client is not None

    @contextlib.asynccontextmanager
    async def downloads(self, address: str) -> AsyncIterator[Downloads]:
        """The drafts of the server.

        Raises:
            InvalidRequest: there is no address.
        """
        downloads = Downloads(
            _required(address),
            key=await self._keys.load(),
            storage=self._storage,
            tls=self._tls,
            retry=self._retry,
        )
        try:
            yield downloads
        finally:
            await downloads.aclose()

    def fits(self, choices: Choices) -> bool:
        """The client, if there is one, has the draft that is chosen now."""
        return self._client is None or self._drafts_with == self._storage.installed(choices.draft)

    async def connected(self, choices: Choices) -> EdgeClient:
        """A client with the chosen draft, made when it is first needed.

        Raises:
            InvalidRequest: there is no address, or no draft although the method needs one.
            CosdError: the server or the draft cannot be used.
        """
        if self._client is None:
            server = _required(choices.server)
            installed = self._storage.installed(choices.draft)
            if installed is None and METHODS[choices.method].drafts:
                raise InvalidRequest(
                    "there is no draft on this device; download one in Settings, or choose the "
                    "method autoregressive"
                )
            self._client = EdgeClient(
                server,
                draft=None if installed is None else self._storage.draft(choices.draft),
                api_key=await self._keys.load(),
                timeouts=self._timeouts,
                retry=self._retry,
                verify=self._tls,
                cache=self._storage.tables,
                offline="wait",
                on_link=self._on_link,
            )
            self._drafts_with = installed
        try:
            await self._client.connect()
        except BaseException:
            await self.drop()
            raise
        return self._client

    async def drop(self) -> None:
        """Close the client and free the draft's memory. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def checked_address(given: str) -> str:
    """The address of a server as somebody typed it: without a scheme it is https, or http on
    this device.

    Raises:
        InvalidRequest: it is none.
    """
    address = given.strip()
    if address and "://" not in address:
        host = address.partition("/")[0].rpartition(":")[0] or address
        local = host in ("localhost", "[::1]") or host.startswith("127.")
        address = f"{'http' if local else 'https'}://{address}"
    return checked_url(_required(address))


def _required(address: str) -> str:
    if not address:
        raise InvalidRequest("no server is set; enter its address in Settings", field="server")
    return address


def _tls() -> ssl.SSLContext:
    """Authorities that come with the app: Python does not find a phone's own."""
    return ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or certifi.where())
