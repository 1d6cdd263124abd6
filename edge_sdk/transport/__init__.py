"""How requests travel: HTTP, WebSocket, or whichever works."""

from __future__ import annotations

from edge_sdk.transport.base import Transport
from edge_sdk.transport.choice import AutoTransport, TransportName, transport_named
from edge_sdk.transport.exchange import Exchange
from edge_sdk.transport.http import HttpTransport
from edge_sdk.transport.websocket import WebSocketTransport

__all__ = [
    "AutoTransport",
    "Exchange",
    "HttpTransport",
    "Transport",
    "TransportName",
    "WebSocketTransport",
    "transport_named",
]
