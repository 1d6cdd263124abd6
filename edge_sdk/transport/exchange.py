"""What a request cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one request cost.

    Attributes:
        up_bytes, down_bytes: bodies.
        wire_up_bytes, wire_down_bytes: with HTTP or WebSocket framing.
        server_seconds: what the server reports to have spent.
    """

    up_bytes: int
    down_bytes: int
    wire_up_bytes: int
    wire_down_bytes: int
    server_seconds: float = 0.0
