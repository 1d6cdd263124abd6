"""Going down without cutting anybody off."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Final

from server_app.host import Host

log = logging.getLogger(__name__)

QUIET_SECONDS: Final = 5.0  # a session not used for so long does not hold the drain up
FINISH_SECONDS: Final = 10.0  # for what is being verified
_LOOK_SECONDS: Final = 0.05


async def drain(host: Host, seconds: float) -> None:
    """Open no new session, serve those that are open for at most `seconds`, then end streams,
    begin nothing more, and wait for what is under way.

    It goes on earlier when no session has a request in progress or was used in the last few
    seconds.
    """
    host.draining = True
    active = host.active_sessions(QUIET_SECONDS)
    if seconds and active:
        log.info("draining: %d sessions in use are served for up to %g s", active, seconds)
    await _while_active(host, QUIET_SECONDS, seconds)
    host.closing = True
    await _while_active(host, 0.0, FINISH_SECONDS)


async def _while_active(host: Host, used: float, seconds: float) -> None:
    # A session grows quiet by time alone, so there is nothing to wait on but the clock.
    for _ in range(math.ceil(seconds / _LOOK_SECONDS)):
        if not host.active_sessions(used):
            return
        await asyncio.sleep(_LOOK_SECONDS)
