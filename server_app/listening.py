"""The socket that a server of this project listens on."""

from __future__ import annotations

import ipaddress
import socket

from edge_sdk.errors import InvalidRequest, ServerUnavailable


def bound(host: str, port: int) -> socket.socket:
    """A socket bound before anything is loaded, so that a taken port is known at once.

    Raises:
        InvalidRequest: `host` is no address of this machine.
        ServerUnavailable: the port is taken, or not allowed.
    """
    try:
        if not host:
            raise OSError("no address")
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise InvalidRequest(
            f"--host {host[:80]!r} is not an address of this machine ({error}); take 127.0.0.1, or "
            f"0.0.0.0 for every address",
            field="host",
        ) from error
    # NOTE: asyncio sends small replies at once only on sockets made with IPPROTO_TCP.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ServerUnavailable(
            f"cannot listen on {host} port {port} ({error.strerror}); choose another --port, or 0 "
            f"for a free one"
        ) from error
    return listener


def only_this_machine(listener: socket.socket) -> bool:
    """Nobody else can reach it."""
    return _host(listener).is_loopback


def address_of(listener: socket.socket) -> str:
    """Where a client on this machine reaches it, as a URL."""
    host, port = listener.getsockname()[:2]
    if _host(listener).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def places_of(listener: socket.socket, path: str = "") -> str:
    """Where it listens, in words: a URL, and what others may take if it is every address."""
    said = f"{address_of(listener)}{path}"
    if not _host(listener).is_unspecified:
        return said
    port = listener.getsockname()[1]
    return (
        f"{said} and on every other address of this machine, such as "
        f"http://{socket.gethostname()}:{port}{path}"
    )


def _host(listener: socket.socket) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(str(listener.getsockname()[0]).partition("%")[0])
