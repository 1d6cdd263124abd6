"""Texts as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from edge_sdk.errors import CosdError
from server_app.openai.interface.problems import body_of
from server_app.openai.interface.replies import Replies
from server_app.openai.interface.texts import Texts

_DONE: Final = b"data: [DONE]\n\n"


class EventStream(StreamingResponse):
    """The reply of a request with `stream`. It closes the texts, whether it was sent, broke off
    or never began.

    Args:
        texts: begun.
        usage_at_end: whether a last event reports the usage; the others then say null.
        failed: told an error that is sent as an event.
    """

    def __init__(
        self,
        texts: Texts,
        replies: Replies,
        *,
        usage_at_end: bool,
        failed: Callable[[CosdError], None] = lambda error: None,
    ) -> None:
        self._texts = texts
        self._replies = replies
        self._usage_at_end = usage_at_end
        self._failed = failed
        # Proxies must not gather what is meant to come as it is written.
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(self._events(), media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._texts.aclose()

    async def _events(self) -> AsyncIterator[bytes]:
        begun: set[int] = set()
        try:
            async for delta in self._texts.deltas():
                if delta.index not in begun:
                    begun.add(delta.index)
                    if (event := self._replies.begin(delta.index)) is not None:
                        yield self._line(event)
                if delta.text or delta.finish_reason:
                    yield self._line(self._replies.event(delta))
        except CosdError as error:
            self._failed(error)
            yield _encoded(body_of(error))
            return
        if self._usage_at_end:
            yield _encoded(self._replies.last(self._texts.usage))
        yield _DONE

    def _line(self, event: dict[str, Any]) -> bytes:
        return _encoded({**event, "usage": None} if self._usage_at_end else event)


def _encoded(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"
