"""Which works share the next step, and whether to wait for more of them. Pure policy: no
clock, no thread, no model."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_SMOOTHING: Final = 0.2  # weight of the newest gap between arrivals
_GAPS_WAITED: Final = 2.0  # an arrival later than so many usual gaps is not waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How works are put together.

    Attributes:
        batch_tokens: most tokens of a step.
        prefill_chunk: most tokens of long works in a step that also has short ones, and of one
            long work in any step.
        wait: longest time in seconds that a work waits for others to join its step.
        queue: most works that wait.
        queue_seconds: how long a work may wait for its first step.
    """

    batch_tokens: int = 512
    prefill_chunk: int = 512
    wait: float = 0.002
    queue: int = 1024
    queue_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the scheduler sees of a work.

    Attributes:
        number: order of arrival.
        owner: whose it is; owners share the model evenly.
        session: works of one session go one after another.
        tokens: how many it still feeds.
        arrived: seconds, on any steady clock.
    """

    number: int
    owner: str
    session: int
    tokens: int
    arrived: float


@dataclass(frozen=True, slots=True)
class Grant:
    """A place in the step: a work may feed so many tokens."""

    number: int
    tokens: int


class Scheduler:
    """Fair between owners, in order of arrival within one, short works before long ones.

    A work is short if what it feeds fits a quarter of the step; verifies nearly always are,
    prefills of long prompts are not. Long works get what short ones leave, and at least a
    quarter of the step, so that nobody starves.

    Owners are served by start-time fair queueing (Goyal, Vin and Cheng 1996): the one that was
    served the fewest tokens comes first, and one that was away begins where the others are.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._served: dict[str, float] = {}
        self._clock = 0.0  # service of the owner served last: where newcomers begin
        self._gap: float | None = None
        self._last_arrival: float | None = None

    def arrived(self, now: float) -> None:
        """Note that a work came."""
        if self._last_arrival is not None:
            gap = now - self._last_arrival
            before = gap if self._gap is None else self._gap
            self._gap = before + _SMOOTHING * (gap - before)
        self._last_arrival = now

    def patience(self, waiting: Sequence[Waiting], now: float, *, active: int) -> float:
        """Seconds to wait for others before the next step; 0 to begin.

        Args:
            active: sessions that may send a work soon, those that wait included.
        """
        if not waiting or self._gap is None or self._last_arrival is None:
            return 0.0
        if active <= len({work.session for work in waiting}):
            return 0.0
        if sum(work.tokens for work in waiting) >= self.policy.batch_tokens:
            return 0.0
        oldest = min(work.arrived for work in waiting)
        left = self.policy.wait - (now - oldest)
        due = self._last_arrival + _GAPS_WAITED * self._gap - now
        if left <= 0 or due <= 0 or self._gap > self.policy.wait:
            return 0.0
        return min(left, due)

    def choose(self, waiting: Sequence[Waiting]) -> list[Grant]:
        """The works of the next step; at least one if any waits."""
        first: dict[int, Waiting] = {}
        for work in sorted(waiting, key=lambda work: work.number):
            first.setdefault(work.session, work)
        most = self.policy.batch_tokens
        reserve = min(self.policy.prefill_chunk, max(1, most // 4))
        short = [work for work in first.values() if work.tokens <= reserve]
        long = [work for work in first.values() if work.tokens > reserve]
        grants: list[Grant] = []
        left = self._take(short, most - reserve if long else most, grants, whole=True)
        if long:
            room = reserve + left
            if grants:
                room = min(room, self.policy.prefill_chunk)
            self._take(long, room, grants, whole=False)
        self._forget({work.owner for work in waiting})
        return grants

    def _take(
        self, works: Sequence[Waiting], room: int, grants: list[Grant], *, whole: bool
    ) -> int:
        """Grant in fair order; returns the tokens left. `whole`: a work fits or it waits."""
        lines: dict[str, deque[Waiting]] = {}
        for work in works:
            lines.setdefault(work.owner, deque()).append(work)
        heap = [(self._service(owner), line[0].number, owner) for owner, line in lines.items()]
        heapq.heapify(heap)
        while heap and room > 0:
            service, _, owner = heapq.heappop(heap)
            work = lines[owner].popleft()
            tokens = work.tokens if whole else min(work.tokens, room, self.policy.prefill_chunk)
            if tokens > room and grants:
                break
            grants.append(Grant(work.number, tokens))
            room -= tokens
            self._clock = max(self._clock, service)
            self._served[owner] = service + max(tokens, 1)
            if lines[owner]:
                heapq.heappush(heap, (self._served[owner], lines[owner][0].number, owner))
        return max(room, 0)

    def _service(self, owner: str) -> float:
        return max(self._served.get(owner, 0.0), self._clock)

    def _forget(self, waiting: set[str]) -> None:
        """Drop the books of owners that have no advantage or debt left."""
        for owner in [o for o, s in self._served.items() if s <= self._clock and o not in waiting]:
            del self._served[owner]
