"""What is noted about the request under way, for its log line and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class RequestFacts:
    """Facts of one request or WebSocket connection; nothing of its content.

    Attributes:
        request_id: names the request in the log and in the reply's `x-request-id`.
        owner: hash of the key, "" before it was checked.
        tokens: tokens that the request added to a text.
        code: code of the error it ended in, "" for none.
        count_error: told every code.
    """

    request_id: str = ""
    owner: str = ""
    tokens: int = 0
    code: str = ""
    count_error: Callable[[str], None] | None = None

    def fail(self, code: str) -> None:
        """Note an error told to the client, in a reply or inside a stream."""
        self.code = code
        if self.count_error is not None:
            self.count_error(code)


_current: ContextVar[RequestFacts | None] = ContextVar("request_facts", default=None)


def current_facts() -> RequestFacts:
    """Facts of the request that this task works for; outside of one they go nowhere."""
    return _current.get() or RequestFacts()


def current_request_id() -> str:
    """Id of the request that this task works for, "" outside of one."""
    facts = _current.get()
    return facts.request_id if facts is not None else ""


@contextmanager
def noting(facts: RequestFacts) -> Iterator[None]:
    """Make `facts` the current ones of this task and of those it starts."""
    token = _current.set(facts)
    try:
        yield
    finally:
        _current.reset(token)
