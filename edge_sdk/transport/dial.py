"""The upgrade of a connection to a WebSocket."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidProxy, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from edge_sdk.errors import CosdError, NotFound, ProtocolError, TimedOut
from edge_sdk.transport.address import KeySource
from edge_sdk.transport.refusal import refusal
from edge_sdk.transport.unreachable import proxy_of, unreachable
from edge_sdk.wire.frames import REPLY_HEAD, SUBPROTOCOL
from edge_sdk.wire.limits import MAX_REPLY_BODY

# The library logs whole upgrades, the key among their headers, to whoever wants debug messages.
_log: Final = logging.getLogger("edge_sdk.transport.websockets")
_log.setLevel(logging.WARNING)
_NO_SUCH_ROUTE: Final = (404, 405, 426)
_CLOSE_SECONDS: Final = 2.0


class UpgradeRefused(ProtocolError):
    """What is in between, or the server, takes no WebSockets; trying again does not help."""


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """The key is for the address that was given."""
        return exc


async def dial(
    base_url: str,
    path: str,
    *,
    keys: KeySource,
    tls: ssl.SSLContext,
    seconds: float,
    headers: Mapping[str, str] | None = None,
) -> ClientConnection:
    """A WebSocket to `path` that speaks this protocol's frames; `headers` go with the upgrade.

    Raises:
        ConnectionFailed, TimedOut: no connection within `seconds`.
        UpgradeRefused: a connection, but no WebSocket.
        CosdError: the server's own refusal.
    """
    url = "ws" + base_url.removeprefix("http") + path
    headers = {**(headers or {}), **await keys.headers()}
    proxy = proxy_of(base_url)
    try:
        connection = await _Connect(
            url,
            additional_headers=headers,
            user_agent_header=None,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            # The one that HTTP goes through, which the library would choose otherwise.
            proxy=proxy,
            ssl=tls if url.startswith("wss:") else None,
            open_timeout=seconds,
            # The server asks; a second question would only keep a phone's radio awake.
            ping_interval=None,
            close_timeout=_CLOSE_SECONDS,
            max_size=MAX_REPLY_BODY + REPLY_HEAD,
            logger=_log,
        )
    except InvalidStatus as error:
        raise _refused(base_url, path, error) from error
    except TimeoutError as error:
        raise TimedOut(
            f"{base_url} did not upgrade {path} within {seconds:g} s; a longer time is set with "
            f"Timeouts(connect=...)"
        ) from error
    except (EOFError, OSError) as error:
        raise unreachable(base_url, error, proxy=proxy) from error
    except (InvalidHandshake, InvalidProxy, WebSocketException, ImportError) as error:
        if isinstance(error.__cause__, EOFError | OSError):
            raise unreachable(base_url, error, proxy=proxy) from error
        raise UpgradeRefused(_sentence(base_url, str(error) or type(error).__name__)) from error
    if connection.subprotocol != SUBPROTOCOL:
        connection.transport.abort()
        raise UpgradeRefused(_sentence(base_url, f"it does not speak {SUBPROTOCOL}"))
    return connection


def _refused(base_url: str, path: str, error: InvalidStatus) -> CosdError:
    answer = error.response
    headers = {name.lower(): value for name, value in answer.headers.raw_items()}
    said = refusal(base_url, path, answer.status_code, headers, bytes(answer.body or b""))
    # A server without WebSockets takes the upgrade for a request of a route it does not have.
    unknown = answer.status_code in _NO_SUCH_ROUTE or isinstance(said, NotFound)
    if unknown or isinstance(said, ProtocolError):
        return UpgradeRefused(_sentence(base_url, f"it answered {answer.status_code}"))
    return said


def _sentence(base_url: str, reason: str) -> str:
    return (
        f"{base_url} takes no WebSocket ({reason}); a proxy in between may block it, and "
        f"transport='http' does without"
    )
