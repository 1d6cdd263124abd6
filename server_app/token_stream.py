"""`autoregressive`: the server alone, a token a pass, streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from edge_sdk.errors import BaseMismatch, InvalidRequest, SequenceConflict, ServerUnavailable
from edge_sdk.wire import Finish, Generated, Verify
from server_app.engine.store import Held
from server_app.engine.work import VerifyWork
from server_app.target.model import TargetModel


class TokenStream:
    """The tokens of a session's text from `base` on.

    A client whose stream broke asks again with the tokens it has; the same positions give the
    same tokens. The newest stream of a session ends the ones before it.

    Args:
        run: carries out a work.
        closing: whether streams end now.

    Raises:
        InvalidRequest: the session has another method.
        BaseMismatch: the text is shorter than `base`.
    """

    def __init__(
        self,
        held: Held,
        base: int,
        target: TargetModel,
        *,
        run: Callable[[VerifyWork], Awaitable[None]],
        closing: Callable[[], bool],
    ) -> None:
        session = held.session
        if session.generation.method != "autoregressive":
            raise InvalidRequest(
                f"the session's method is {session.generation.method!r}; a stream needs "
                f"'autoregressive'",
                field="method",
            )
        if base > len(session.generated):
            raise BaseMismatch(
                f"base is {base}, but the text has {len(session.generated)} tokens", field="base"
            )
        self._held = held
        self._base = base
        self._target = target
        self._run = run
        self._closing = closing
        self._left = False

    async def tokens(self) -> AsyncGenerator[Generated, None]:
        """Raises:
        SequenceConflict: a newer stream took over.
        ServerUnavailable: the server is going down.
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
                if self._closing():
                    raise ServerUnavailable("the server is going down; open the session again")

    async def _token(self, stream: int, position: int) -> Generated | None:
        """The token at a position, decoded if it is the next one; None past the end."""
        session = self._held.session
        async with self._held.turn:
            if self._held.stream != stream:
                raise SequenceConflict("another request took this stream over")
            if position == len(session.generated):
                if session.finish(self._target) != Finish.NONE:
                    return None
                verify = Verify(sequence=0, base=position)
                proposal = session.half.read(b"", None)
                await self._run(VerifyWork(session, verify, proposal, wanted=self._wanted))
            last = position == len(session.generated) - 1
            finish = session.finish(self._target) if last else Finish.NONE
            return Generated(session.generated[position], int(finish))

    def _wanted(self) -> bool:
        return not self._left and not self._held.gone
