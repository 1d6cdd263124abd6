"""The thread that owns the model.

Requests hand it work and await a future; the event loop never touches torch. One work's
chunk is one pass for now; the loop is where a scheduler will put several into one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from edge_sdk.errors import CosdError, ServerFault, ServerUnavailable
from server_app.engine.work import Work
from server_app.target.model import TargetModel

log = logging.getLogger(__name__)

PREFILL_CHUNK: Final = 512  # tokens of one pass before another work gets its turn


class _Item:
    """One thing to do on the thread and the future that waits for it."""

    __slots__ = ("action", "future", "loop", "work")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Work | None = None,
        action: Callable[[], Any] | None = None,
    ) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.work = work
        self.action = action

    def resolve(self, result: Any) -> None:
        self._settle(lambda: self.future.set_result(result))

    def fail(self, error: BaseException) -> None:
        self._settle(lambda: self.future.set_exception(error))

    def _settle(self, set_outcome: Callable[[], None]) -> None:
        def settle() -> None:
            if not self.future.done():
                set_outcome()

        try:
            self.loop.call_soon_threadsafe(settle)
        except RuntimeError:
            log.debug("a waiting event loop was closed")


class Engine:
    """Runs work on one thread, in order of arrival, a chunk at a time."""

    def __init__(self, target: TargetModel, *, queue_limit: int = 1024) -> None:
        self.target = target
        self._items: deque[_Item] = deque()
        self._limit = queue_limit
        self._ready = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._beat = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the pass under way, refuse the rest, and end the thread."""
        with self._ready:
            self._stopping = True
            self._ready.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def heartbeat_age(self) -> float:
        """Seconds since the thread last went round."""
        return time.monotonic() - self._beat

    async def run(self, work: Work) -> None:
        """Carry out a work.

        Raises:
            ServerUnavailable: the queue is full, or the server is going down.
            ServerFault: the model failed on it.
        """
        await self._submit(_Item(asyncio.get_running_loop(), work=work))

    async def call(self, action: Callable[[], Any]) -> Any:
        """Run a function on the thread."""
        return await self._submit(_Item(asyncio.get_running_loop(), action=action))

    def post(self, action: Callable[[], Any]) -> None:
        """Run a function on the thread, not waiting; dropped when the engine is stopping."""
        item = _Item(asyncio.get_running_loop(), action=action)
        item.future.add_done_callback(lambda future: future.cancelled() or future.exception())
        with self._ready:
            if not self._stopping:
                self._items.append(item)
                self._ready.notify()

    async def _submit(self, item: _Item) -> Any:
        with self._ready:
            if self._stopping:
                raise ServerUnavailable("the server is going down; try again shortly")
            if len(self._items) >= self._limit:
                raise ServerUnavailable(
                    f"{self._limit} requests are waiting already; try again shortly",
                    retry_after=1.0,
                )
            self._items.append(item)
            self._ready.notify()
        return await item.future

    def _loop(self) -> None:
        while True:
            with self._ready:
                while not self._items and not self._stopping:
                    self._beat = time.monotonic()
                    self._ready.wait(timeout=1.0)
                if self._stopping:
                    break
                item = self._items.popleft()
            self._beat = time.monotonic()
            self._do(item)
        for item in self._items:
            item.fail(ServerUnavailable("the server is going down; try again shortly"))

    def _do(self, item: _Item) -> None:
        try:
            if item.action is not None:
                item.resolve(item.action())
            elif item.work is not None and self._step(item.work):
                item.resolve(None)
            else:
                with self._ready:
                    self._items.append(item)
        except CosdError as error:
            item.fail(error)
        except Exception:
            log.exception("the model failed on a request")
            item.fail(ServerFault("the server failed on this request; its log says why"))

    def _step(self, work: Work) -> bool:
        if work.done:
            return True
        chunk = work.chunk(self.target, PREFILL_CHUNK)
        if chunk.token_ids:
            (logits,) = self.target.forward([chunk])
            work.take(self.target, logits)
        return work.done
