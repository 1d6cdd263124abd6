"""Where the server is and what it is shown to let us in."""

from __future__ import annotations

import httpx

from edge_sdk.arguments import kind, shown
from edge_sdk.errors import InvalidRequest


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
    return str(url).rstrip("/")


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
