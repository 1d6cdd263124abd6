"""The server alone: a token a pass, streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from edge_sdk.errors import BaseMismatch, SequenceConflict, ServerAway
from edge_sdk.wire import Finish, Generate, Generated, Verify
from server_app.engine.admission import check_tokens
from server_app.engine.store import Held
from server_app.engine.work import VerifyWork
from server_app.target.model import TargetModel


class TokenStream:
    """The tokens of a session's text from `base` on.

    A client whose stream broke asks again with the tokens it has; the same positions give the
    same tokens. The newest stream of a session ends the ones before it, and so does a numbered
    request. Any method may be streamed: a token is what the method settles when nothing is
    drafted.

    Args:
        run: carries out a work.
        closing: whether streams end now.

    Raises:
        BaseMismatch: the text is shorter than `base`, or has no token that waits to be settled.
        InvalidRequest: `settled` is no token of the target.
    """

    def __init__(
        self,
        held: Held,
        message: Generate,
        target: TargetModel,
        *,
        run: Callable[[VerifyWork], Awaitable[None]],
        closing: Callable[[], bool],
    ) -> None:
        session = held.session
        if message.settled is not None:
            check_tokens((message.settled,), target, "settled")
        self._settled = message.settled if session.awaits_device else None
        length = len(session.generated) + (self._settled is not None)
        if session.awaits_device and self._settled is None:
            raise BaseMismatch(
                "the last block was rejected; its settled token must come with the request",
                field="settled",
            )
        if message.base > length or (self._settled is not None and message.base < length):
            raise BaseMismatch(
                f"base is {message.base}, but the text has {length} tokens", field="base"
            )
        self._held = held
        self._base = message.base
        self._limit = message.limit
        self._target = target
        self._run = run
        self._closing = closing
        self._left = False

    async def tokens(self) -> AsyncGenerator[Generated, None]:
        """Raises:
        SequenceConflict: a newer stream took over.
        ServerAway: the server is going down.
        """
        try:
            async for token in self._tokens():
                yield token
        finally:
            self._left = True

    async def _tokens(self) -> AsyncGenerator[Generated, None]:
        with self._held.in_use():
            self._held.stream += 1
            stream = self._held.stream
            position = self._base
            while True:
                # A client that goes away leaves a token whose step has begun to whoever asks
                # next.
                under_way = asyncio.ensure_future(self._token(stream, position))
                under_way.add_done_callback(lambda done: done.cancelled() or done.exception())
                token = await asyncio.shield(under_way)
                if token is not None:
                    yield token
                if token is None or token.finish:
                    return
                position += 1
                if position - self._base == self._limit:
                    return
                if self._closing():
                    raise ServerAway("the server is going down; open the session again")

    async def _token(self, stream: int, position: int) -> Generated | None:
        """The token at a position, decoded if it is the next one; None past the end."""
        session = self._held.session
        async with self._held.turn:
            if self._held.stream != stream:
                raise SequenceConflict("another request took this stream over")
            settled = self._settled if session.awaits_device else None
            if position == len(session.generated) + (settled is not None):
                if session.finish(self._target) != Finish.NONE:
                    return None
                verify = Verify(sequence=0, base=position, settled=settled)
                proposal = session.half.read(b"", None)
                await self._run(VerifyWork(session, verify, proposal, wanted=self._wanted))
                session.last_full = False
                if position == len(session.generated):
                    return None  # the settled token completed the text
            last = position == len(session.generated) - 1
            finish = session.finish(self._target) if last else Finish.NONE
            return Generated(session.generated[position], int(finish))

    def _wanted(self) -> bool:
        return not self._left and not self._held.gone
