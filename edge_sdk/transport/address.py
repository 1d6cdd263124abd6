"""Where the server is, how it is known to be the right one, and what it is shown to let us in."""

from __future__ import annotations

import inspect
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from edge_sdk.arguments import kind, shown
from edge_sdk.errors import CosdError, InvalidRequest

ApiKey = str | Callable[[], Awaitable[str]]


def checked_url(base_url: str) -> str:
    """The address of a server without a trailing slash.

    Raises:
        InvalidRequest: it is none.
    """
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"base_url {shown(base_url)} is not a URL ({error})", field="base_url"
        ) from error
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise InvalidRequest(
            f"{shown(base_url)} is not the address of a server; write http://HOST:PORT",
            field="base_url",
        )
    if url.port is not None and not 1 <= url.port <= 65535:
        raise InvalidRequest(
            f"{shown(base_url)} has port {url.port}; a port is within [1, 65535]",
            field="base_url",
        )
    address = str(url).rstrip("/")
    if url.path.rstrip("/").endswith("/v1"):
        # What OpenAI's clients want; the SDK adds the path itself.
        raise InvalidRequest(
            f"{shown(base_url)} is an address for OpenAI's clients; give it without /v1: "
            f"{address.removesuffix('/v1')}",
            field="base_url",
        )
    return address


def checked_key(api_key: str) -> str:
    """A key that a header can carry.

    Raises:
        InvalidRequest: it cannot be one.
    """
    given: object = api_key
    if not isinstance(given, str):
        raise InvalidRequest(f"api_key is a {kind(given)}; give a string", field="api_key")
    if not api_key.isascii() or not api_key.isprintable() or not api_key.strip():
        raise InvalidRequest(
            "api_key has characters that a header cannot carry, or none", field="api_key"
        )
    return api_key


class KeySource:
    """The key of each request or connection; it is never part of a message or a log line.

    Args:
        api_key: the key, an async function that returns it (asked every time, so it can renew
            one that expires), or None.

    Raises:
        InvalidRequest: it is neither, or cannot be sent.
    """

    def __init__(self, api_key: ApiKey | None) -> None:
        self._api_key = (
            api_key if api_key is None or callable(api_key) else f"Bearer {checked_key(api_key)}"
        )

    async def headers(self) -> dict[str, str]:
        """The header with the key, if there is one.

        Raises:
            InvalidRequest: the function failed, or returned no key.
        """
        if self._api_key is None:
            return {}
        if isinstance(self._api_key, str):
            return {"authorization": self._api_key}
        try:
            answer: Any = self._api_key()
            key = await answer if inspect.isawaitable(answer) else answer
        except CosdError:
            raise
        except Exception as error:
            # Its text may quote the key.
            raise InvalidRequest(
                f"the function given as api_key failed with {type(error).__name__}",
                field="api_key",
            ) from error
        return {"authorization": f"Bearer {checked_key(key)}"}


def tls_context(
    verify: ssl.SSLContext | bool = True, ca_file: Path | str | None = None
) -> ssl.SSLContext:
    """What tells the right server from another, shared by every connection.

    Args:
        verify: False trusts everybody; a context is taken as it is.
        ca_file: PEM file of the authorities to trust instead of the public ones.

    Raises:
        InvalidRequest: an argument is wrong, or the file cannot be used.
    """
    given: object = verify
    if not isinstance(given, bool | ssl.SSLContext):
        raise InvalidRequest(
            f"verify is {shown(given)} ({kind(given)}); give True, False or an ssl.SSLContext",
            field="verify",
        )
    if ca_file is None:
        return verify if isinstance(verify, ssl.SSLContext) else httpx.create_ssl_context(verify)
    path: object = ca_file
    if not isinstance(path, str | os.PathLike):
        raise InvalidRequest(
            f"ca_file is {shown(path)} ({kind(path)}); give the path of a PEM file",
            field="ca_file",
        )
    if verify is not True:
        raise InvalidRequest("give either verify or ca_file", field="ca_file")
    try:
        return ssl.create_default_context(cafile=os.fspath(path))
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            f"ca_file {shown(str(path))} has no authorities that can be read ({error}); give a "
            f"PEM file",
            field="ca_file",
        ) from error
