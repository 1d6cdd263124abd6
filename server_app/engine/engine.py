"""The thread that owns the model.

Requests hand it works and await a future; the event loop never touches torch. What waits when
a step begins shares its forward pass, as far as the scheduler lets it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from edge_sdk.errors import CosdError, ServerAway, ServerFault, ServerUnavailable
from edge_sdk.wire import Generation
from server_app.engine.observer import Observer
from server_app.engine.outcome import Outcome
from server_app.engine.runner import Runner
from server_app.engine.scheduler import Policy, Scheduler, Waiting
from server_app.engine.session import Session
from server_app.engine.work import Prefill, Work
from server_app.methods.base import ServerHalf
from server_app.target.model import TargetModel

log = logging.getLogger(__name__)

NEW_TEXTS: Final = 0.5  # share of the queue that new texts may fill


class Abandoned(ServerUnavailable):
    """Nobody waits for the work any more; it was dropped and changed nothing."""


class _Item:
    """A work that waits, or an action, and the outcome that somebody awaits."""

    __slots__ = ("action", "arrived", "number", "outcome", "work")

    def __init__(
        self, outcome: Outcome, *, work: Work | None = None, action: Callable[[], Any] | None = None
    ) -> None:
        self.outcome = outcome
        self.work = work
        self.action = action
        self.number = 0
        self.arrived = time.monotonic()


class Engine:
    """Runs works in steps on one thread.

    Args:
        target: the model; touched by that thread only.
        policy: how works are put together and how many may wait.
        observer: told of every step.
    """

    def __init__(
        self,
        target: TargetModel,
        policy: Policy | None = None,
        *,
        observer: Observer | None = None,
    ) -> None:
        self.target = target
        self.policy = policy or Policy()
        self.observer = observer or Observer()
        self.runner = Runner(target, self.observer)
        self._scheduler = Scheduler(self.policy)
        self._incoming: deque[_Item] = deque()
        self._waiting: dict[int, _Item] = {}
        self._ready = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._beat = time.monotonic()
        self._numbers = 0
        self._active: set[int] = set()
        self._filling: set[int] = set()  # sessions whose prefill waits
        self._step_seconds = 0.05

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the step under way, refuse the rest, and end the thread."""
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

    @property
    def waiting(self) -> int:
        """Works and actions that wait or are under way."""
        return len(self._incoming) + len(self._waiting)

    def check_room(self, share: float = 1.0) -> None:
        """Refuse what would wait behind too many others.

        Args:
            share: of the queue that may be taken. New texts get half of it, so that those that
                have begun can go on.

        Raises:
            ServerUnavailable: so many wait already.
        """
        waiting, most = self.waiting, max(1, int(share * self.policy.queue))
        if waiting >= most:
            raise ServerUnavailable(
                f"{waiting} requests are waiting already; try again shortly",
                retry_after=max(1.0, self._step_seconds * waiting / 16),
            )

    async def run(self, work: Work) -> None:
        """Carry out a work.

        Raises:
            ServerUnavailable: too many wait, or it waited too long.
            ServerAway: the server is going down.
            Abandoned: nobody wants it any more.
            ServerFault: the model failed on it.
            SessionLost: the session was closed meanwhile.
        """
        number = work.session.number
        if isinstance(work, Prefill):
            self.check_room(NEW_TEXTS)
            self._filling.add(number)
        elif number not in self._filling:  # a verify takes the place of its session's prefill
            self.check_room()
        try:
            await self._submit(_Item(Outcome(), work=work))
        finally:
            self._filling.discard(number)

    async def call(self, action: Callable[[], Any]) -> Any:
        """Run a function on the thread, between two steps.

        Raises:
            ServerAway: the server is going down.
        """
        return await self._submit(_Item(Outcome(), action=action))

    def post(self, action: Callable[[], Any]) -> None:
        """Run a function on the thread, not waiting; dropped when the engine is stopping."""
        with self._ready:
            if not self._stopping:
                self._incoming.append(_Item(Outcome.ignored(), action=action))
                self._ready.notify()

    def open(self, session: Session) -> None:
        """Count a session among those that may send works soon."""
        self._active.add(session.number)

    def close(self, session: Session) -> None:
        """Give a session's cache back for good, not waiting."""
        self._active.discard(session.number)
        self.post(lambda: self.runner.caches.close(session))

    async def pin(self, session: Session) -> None:
        """Keep a session's cache for good, for others to share."""
        await self.call(lambda: self.runner.caches.pin(session))

    async def trim(self, session: Session, length: int) -> int:
        """Drop cached tokens past `length`; returns how many are left."""
        left: int = await self.call(lambda: self.runner.caches.trim(session, length))
        return left

    async def extend(
        self, session: Session, ids: Sequence[int], generation: Generation, half: ServerHalf
    ) -> int:
        """Give a session its next prompt, between two steps; returns how many of its tokens are
        in the cache."""

        def carry_out() -> int:
            shared = session.extend(ids, generation, half)
            return self.runner.caches.trim(session, min(shared, session.length - 1))

        reused: int = await self.call(carry_out)
        return reused

    async def _submit(self, item: _Item) -> Any:
        with self._ready:
            if self._stopping:
                raise ServerAway("the server is going down; try again shortly")
            self._incoming.append(item)
            self._ready.notify()
        return await item.outcome.wait()

    def _loop(self) -> None:
        try:
            while self._round():
                pass
        except BaseException:
            log.exception("the engine thread ended")
            raise
        finally:
            with self._ready:
                self._stopping = True
                left = [*self._waiting.values(), *self._incoming]
            error = ServerAway("the server is going down; try again shortly")
            Outcome.deliver([(item.outcome, error) for item in left], failed=True)

    def _round(self) -> bool:
        """Take what came and do one step; False when stopping."""
        with self._ready:
            while not self._incoming and not self._waiting and not self._stopping:
                self._beat = time.monotonic()
                self._ready.wait(timeout=1.0)
            if self._stopping:
                return False
            came = list(self._incoming)
            self._incoming.clear()
        self._beat = time.monotonic()
        self._take(came)
        self._drop()
        waiting = self._seen()
        patience = self._scheduler.patience(waiting, time.monotonic(), active=len(self._active))
        if patience > 0:
            with self._ready:
                if not self._incoming and not self._stopping:
                    self._ready.wait(timeout=patience)
            return True
        if waiting:
            self._step(waiting)
        return True

    def _take(self, came: Sequence[_Item]) -> None:
        done: list[tuple[Outcome, Any]] = []
        for item in came:
            if item.work is not None:
                self._scheduler.arrived(item.arrived)
                self._numbers += 1
                item.number = self._numbers
                self._waiting[item.number] = item
                continue
            assert item.action is not None
            try:
                done.append((item.outcome, item.action()))
            except CosdError as error:
                Outcome.deliver([(item.outcome, error)], failed=True)
            except Exception:
                log.exception("the engine failed on a request")
                fault = ServerFault("the server failed on this request; its log says why")
                Outcome.deliver([(item.outcome, fault)], failed=True)
        Outcome.deliver(done)

    def _drop(self) -> None:
        """Give up what nobody waits for any more, and what has waited too long."""
        late = time.monotonic() - self.policy.queue_seconds
        followed = {
            item.work.session.number
            for item in self._waiting.values()
            if item.work is not None and not isinstance(item.work, Prefill)
        }
        failed: list[tuple[Outcome, Any]] = []
        for item in list(self._waiting.values()):
            work = item.work
            assert work is not None
            error: CosdError | None = None
            if isinstance(work, Prefill) and work.session.number in followed:
                # The verify computes what is missing.
                error = Abandoned("a verify takes its place")
            elif not work.wanted():
                error = Abandoned("nobody waits for the request any more")
            elif not work.begun and item.arrived < late:
                error = ServerUnavailable(
                    f"the request waited {self.policy.queue_seconds:g} s for its turn; the server "
                    f"is overloaded, try again later",
                    retry_after=1.0,
                )
            if error is not None:
                del self._waiting[item.number]
                self.runner.drop(work, error)
                failed.append((item.outcome, error))
        Outcome.deliver(failed, failed=True)

    def _seen(self) -> list[Waiting]:
        return [
            Waiting(
                item.number,
                item.work.session.owner,
                item.work.session.number,
                item.work.left(),
                item.arrived,
            )
            for item in self._waiting.values()
            if item.work is not None
        ]

    def _step(self, waiting: Sequence[Waiting]) -> None:
        grants = self._scheduler.choose(waiting)
        items = [(self._waiting[grant.number], grant.tokens) for grant in grants]
        works = [(item.work, tokens) for item, tokens in items if item.work is not None]
        now = time.monotonic()
        waits = [now - item.arrived for item, _ in items if item.work and not item.work.begun]
        self.runner.step(works, waits)
        self._step_seconds += 0.1 * (time.monotonic() - now - self._step_seconds)
        done: list[tuple[Outcome, Any]] = []
        failed: list[tuple[Outcome, Any]] = []
        for item, _ in items:
            work = item.work
            assert work is not None
            if work.error is not None:
                failed.append((item.outcome, work.error))
            elif work.done:
                done.append((item.outcome, None))
            else:
                continue
            del self._waiting[item.number]
        Outcome.deliver(done)
        Outcome.deliver(failed, failed=True)
