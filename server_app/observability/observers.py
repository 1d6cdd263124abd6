"""Several observers as one."""

from __future__ import annotations

from server_app.engine.observer import Observer, StepReport


class Observers(Observer):
    """Tells each of its observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def step(self, report: StepReport) -> None:
        for observer in self._observers:
            observer.step(report)

    def verdict(self, method: str, drafted: int, examined: int, accepted: int) -> None:
        for observer in self._observers:
            observer.verdict(method, drafted, examined, accepted)

    def stale(self, method: str) -> None:
        for observer in self._observers:
            observer.stale(method)

    def session_evicted(self, reason: str) -> None:
        for observer in self._observers:
            observer.session_evicted(reason)

    def cache_evicted(self, tokens: int) -> None:
        for observer in self._observers:
            observer.cache_evicted(tokens)

    def prefix_shared(self, tokens: int) -> None:
        for observer in self._observers:
            observer.prefix_shared(tokens)

    def fault(self) -> None:
        for observer in self._observers:
            observer.fault()
