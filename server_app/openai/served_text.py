"""One text that the server writes alone for a client without the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from typing import Final

from edge_sdk.errors import CosdError, RateLimited, ServerFault, ServerUnavailable, SessionLost
from edge_sdk.text.tokens import Origin, Token
from edge_sdk.text.transcript import Transcript
from edge_sdk.wire import (
    PROTOCOL_VERSION,
    Finish,
    Generate,
    Generated,
    Generation,
    Open,
    Opened,
    Prompt,
    decode,
    encode,
)
from server_app.host import Host
from server_app.openai.interface.delta import Delta, FinishReason

MAX_REOPENS: Final = 8  # in a row, without a token between them
MAX_WAITS: Final = 5  # in a row, for a server that is full
_WAIT_SECONDS: Final = 1.0


class ServedText:
    """A session of the host, used the way the SDK uses one: a lost session is opened again with
    the tokens there are, and the same positions give the same tokens.

    Args:
        owner: whose key asked.
        index: number of the text in its request.
        stop: strings that end the text and are no part of it.

    Attributes:
        prompt_tokens: of the prompt, once opened.
        tokens: generated tokens, the end token and those of a stop string included.
    """

    def __init__(
        self,
        host: Host,
        owner: str,
        prompt: Prompt,
        generation: Generation,
        *,
        index: int = 0,
        stop: Sequence[str] = (),
    ) -> None:
        self.index = index
        self.prompt_tokens = 0
        self._host = host
        self._owner = owner
        self._prompt = prompt
        self._generation = generation
        self._pieces = host.target.vocabulary.pieces
        self._transcript = Transcript(stop)
        self._ids: list[int] = []
        self._session_id = ""
        self._finished = False

    @property
    def tokens(self) -> int:
        return len(self._ids)

    async def write(self, deltas: asyncio.Queue[Delta | CosdError]) -> None:
        """Put the text into a queue, the first delta as soon as there is a token.

        While the queue is full the session is idle: nothing is computed and it may be evicted,
        so that a reader who does not read keeps nobody out. Whatever happens, it is closed.

        Raises:
            CosdError: the host refused, or the text cannot go on.
        """
        reopened = waited = 0
        try:
            while not self._finished:
                before = self.tokens
                try:
                    if not self._session_id:
                        await self._open()
                    await self._follow(deltas)
                    if self.tokens == before:
                        raise ServerFault("the engine's stream ended before the text was complete")
                    reopened = waited = 0
                except SessionLost:
                    await self._close()
                    reopened = reopened + 1 if self.tokens == before else 1
                    if reopened > MAX_REOPENS:
                        raise
                except (RateLimited, ServerUnavailable) as error:
                    waited = waited + 1 if self.tokens == before else 1
                    over = self._host.closing or (self._host.draining and not self._session_id)
                    # What has no token yet is refused at once: the client can wait itself.
                    if not self._ids or over or waited > MAX_WAITS:
                        raise
                    await asyncio.sleep(min(error.retry_after or 0.1, _WAIT_SECONDS))
        finally:
            await self._close()

    async def _open(self) -> None:
        message = Open(
            protocol=PROTOCOL_VERSION,
            pair_id=None,
            prompt=self._prompt,
            generation=self._generation,
            generated=tuple(self._ids),
        )
        body = encode(message)
        self._session_id = secrets.token_hex(16)
        try:
            reply = await self._host.open(self._owner, self._session_id, message, body)
        except BaseException:
            await self._close()
            raise
        self.prompt_tokens = decode(Opened, reply, limit=len(reply)).prompt_tokens

    async def _follow(self, deltas: asyncio.Queue[Delta | CosdError]) -> None:
        """Decode until the text is complete or the queue is full."""
        late: Delta | None = None
        stream = self._host.generate(self._owner, self._session_id, Generate(self.tokens))
        async with contextlib.aclosing(stream) as generated:
            async for token in generated:
                delta = self._taken(token)
                if delta is None:
                    continue
                try:
                    deltas.put_nowait(delta)
                except asyncio.QueueFull:
                    late = delta
                if late is not None or self._finished:
                    break
        if late is not None:
            await deltas.put(late)

    def _taken(self, generated: Generated) -> Delta | None:
        """What a token adds to the text; None if that cannot be told yet."""
        if generated.token is None:
            return None
        token = Token(generated.token, self._pieces[generated.token], Origin.SERVER)
        self._ids.append(token.id)
        text = self._transcript.feed((token,)).text
        reason: FinishReason | None = None
        if self._transcript.stopped:
            reason = "stop"
        elif generated.finish != Finish.NONE:
            text += self._transcript.close().text
            ended = generated.finish == Finish.END or self._transcript.stopped
            reason = "stop" if ended else "length"
        self._finished = reason is not None
        if text or self._finished or self.tokens == 1:
            return Delta(self.index, text, reason)
        return None

    async def _close(self) -> None:
        session_id, self._session_id = self._session_id, ""
        if session_id:
            await self._host.close(self._owner, session_id)
