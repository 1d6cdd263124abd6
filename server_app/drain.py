"""Going down without cutting anybody off."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from server_app.host import Host

log = logging.getLogger(__name__)

QUIET_SECONDS: Final = 5.0  # a session not used for so long does not hold the drain up
_LOOK_SECONDS: Final = 0.05


async def drain(host: Host, seconds: float) -> None:
    """Open no new session, serve those that are open for at most `seconds`, then end streams.

    It ends early when no session has a request in progress or was used in the last few
    seconds.
    """
    host.draining = True
    end = time.monotonic() + seconds
    active = host.active_sessions(QUIET_SECONDS)
    if seconds and active:
        log.info("draining: %d sessions in use are served for up to %g s", active, seconds)
    while time.monotonic() < end and host.active_sessions(QUIET_SECONDS):  # noqa: ASYNC110  a session grows quiet by time alone
        await asyncio.sleep(_LOOK_SECONDS)
    host.closing = True
