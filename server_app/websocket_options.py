"""What uvicorn must be told about WebSockets."""

from __future__ import annotations

from typing import Any, Final

from edge_sdk.wire.limits import MAX_LAWS_BODY

# A ping waits behind whatever else is on its way, so on a slow link its answer takes as long as
# the largest message; a shorter timeout would cut such links for good.
UVICORN_OPTIONS: Final[dict[str, Any]] = {
    "ws": "websockets-sansio",
    "ws_max_size": MAX_LAWS_BODY + 1,
    "ws_per_message_deflate": False,
    "ws_ping_interval": 30.0,
    "ws_ping_timeout": 180.0,
}
