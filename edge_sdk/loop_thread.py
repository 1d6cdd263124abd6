"""An event loop in a thread of its own, for callers that do not await."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Final, ParamSpec, TypeVar

from edge_sdk.errors import InvalidRequest
from edge_sdk.stream import READER

P = ParamSpec("P")
R = TypeVar("R")

_END_SECONDS: Final = 5.0  # how long an interrupted or closing caller waits for the loop


class LoopThread:
    """Carries out coroutines for any number of threads.

    The thread ends with `close`, when this object is dropped, and when the interpreter exits.
    """

    def __init__(self) -> None:
        started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._stop = stop = asyncio.Event()
        self._thread = threading.Thread(
            target=_serve, args=(started, stop), name="edge-client", daemon=True
        )
        self._thread.start()
        self._loop = started.result()
        self._finalizer = weakref.finalize(self, _end, self._loop, stop, self._thread)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    @property
    def is_current(self) -> bool:
        """The caller runs in this loop's own thread."""
        return threading.current_thread() is self._thread

    def run(self, work: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kw: P.kwargs) -> R:
        """What the coroutine returns. An interrupt (Ctrl-C) cancels it and waits for its end.

        Raises:
            InvalidRequest: called from the loop's own thread, or after `close`.
        """
        if self.is_current:
            raise InvalidRequest(
                "this thread carries out the client's own requests and must not wait for one; "
                "call the client from another thread"
            )
        if self.closed:
            raise InvalidRequest("the client is closed; make a new one")
        done: concurrent.futures.Future[R] = concurrent.futures.Future()
        tasks: list[asyncio.Task[R]] = []
        context = copy_context()
        context.run(READER.set, threading.get_ident())

        def begin() -> None:
            task = self._loop.create_task(work(*args, **kw), context=context)
            task.add_done_callback(lambda ended: _hand_over(ended, done))
            tasks.append(task)

        self._loop.call_soon_threadsafe(begin)
        try:
            return done.result()
        except BaseException:
            if not done.done():
                self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
                concurrent.futures.wait([done], timeout=_END_SECONDS)
            raise

    def call(self, work: Callable[P, R], *args: P.args, **kw: P.kwargs) -> R:
        """What a plain function returns that has to be called in the loop; as `run`."""

        async def called() -> R:
            return work(*args, **kw)

        return self.run(called)

    def post(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Begin a coroutine without waiting for it; after `close` nothing happens."""
        if not self.closed:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(lambda: _keep(self._loop.create_task(work())))

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._finalizer()


_posted: Final[set[asyncio.Task[object]]] = set()


def _keep(task: asyncio.Task[object]) -> None:
    _posted.add(task)
    task.add_done_callback(_posted.discard)


def _hand_over(task: asyncio.Task[R], done: concurrent.futures.Future[R]) -> None:
    if task.cancelled():
        done.set_exception(concurrent.futures.CancelledError())
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


def _serve(
    started: concurrent.futures.Future[asyncio.AbstractEventLoop], stop: asyncio.Event
) -> None:
    async def until_stopped() -> None:
        started.set_result(asyncio.get_running_loop())
        await stop.wait()

    # Cancels what is left and closes the loop, whose end nobody else would see to.
    with asyncio.Runner() as runner:
        runner.run(until_stopped())


def _end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, thread: threading.Thread) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(stop.set)
    if threading.current_thread() is not thread:
        thread.join(_END_SECONDS)
