"""A gateway over real HTTP, in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from harness.serving import QUICK, related_draft, toy_target

from edge_sdk import EdgeClient, Timeouts
from edge_sdk.draft.toy import ToyDraft
from server_app.gateway.access import Access
from server_app.gateway.application import create_app
from server_app.gateway.pool import Pool
from server_app.gateway.process import Process
from server_app.listening import address_of, bound


class Gateway:
    """Attributes:
    url: where it listens.
    """

    def __init__(self, pool: Pool, url: str, process: Process) -> None:
        self.pool = pool
        self.url = url
        self.process = process


@contextlib.contextmanager
def gateway(
    server: str,
    *,
    draft: Callable[[], ToyDraft] | None = related_draft,
    drafts: int = 1,
    queue: int = 8,
    key: str | None = None,
    server_key: str | None = None,
    **options: Any,
) -> Iterator[Gateway]:
    """A gateway to a server, with toy drafts of its own."""
    clients = [
        EdgeClient(
            server,
            draft=None if draft is None else draft(),
            api_key=server_key,
            retry=QUICK,
            timeouts=Timeouts(reply=10.0),
            cache=None,
            offline="fail",
        )
        for _ in range(drafts)
    ]
    pool = Pool(clients, queue=queue)
    process = Process(create_app(pool, access=Access(key), **options), pool)
    with bound("127.0.0.1", 0) as listener:
        thread = threading.Thread(
            target=lambda: asyncio.run(process.serve(sockets=[listener])), daemon=True
        )
        thread.start()
        end = time.monotonic() + 10
        while not process.started:
            assert time.monotonic() < end, "the gateway does not start"
            time.sleep(0.005)
        yield Gateway(pool, address_of(listener), process)
        process.should_exit = True
        thread.join(timeout=15)
        assert not thread.is_alive(), "the gateway does not stop"


def slow_target(seconds: float) -> Callable[[], Any]:
    """A target whose passes take so long."""

    def made() -> Any:
        target = toy_target()
        forward = target.forward

        def late(chunks: Any) -> Any:
            time.sleep(seconds)
            return forward(chunks)

        target.forward = late  # type: ignore[method-assign]
        return target

    return made
