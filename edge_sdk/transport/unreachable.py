"""A server that no connection leads to, and the proxy that may be why."""

from __future__ import annotations

from typing import Final
from urllib.request import getproxies, proxy_bypass

import httpx

from edge_sdk.errors import ConnectionFailed

# OpenSSL's names, as different versions of it give them, for an answer that is no TLS.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


def proxy_of(base_url: str) -> str | None:
    """Address of the proxy that the environment names for a server; None without one."""
    url = httpx.URL(base_url)
    proxies = getproxies()
    named = proxies.get(url.scheme) or proxies.get("all")
    if not named or proxy_bypass(url.netloc.decode()):
        return None
    return named if "://" in named else f"http://{named}"


def unreachable(base_url: str, error: Exception, *, proxy: str | None) -> ConnectionFailed:
    """No connection, as a sentence.

    Args:
        proxy: address of the one that was asked for it.
    """
    reason = str(error) or type(error).__name__
    if proxy is not None:
        # Without the name and password that it may have.
        place = proxy.rpartition("@")[2].rpartition("://")[2]
        return ConnectionFailed(
            f"no connection to {base_url} through the proxy {place} that the environment names "
            f"({reason}); is that proxy right, and does it reach the server? "
            f"NO_PROXY={httpx.URL(base_url).host} goes without it"
        )
    if any(name in reason for name in _NO_TLS):
        return ConnectionFailed(
            f"no connection to {base_url}: what answers there does not speak TLS; use http://, or "
            f"put TLS in front of the server"
        )
    return ConnectionFailed(
        f"no connection to {base_url} ({reason}); is the server running and reachable?"
    )
