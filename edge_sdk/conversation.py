"""A chat whose turns find draft and server warm."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Unpack

from edge_sdk.arguments import kind, shown
from edge_sdk.chat import Message
from edge_sdk.closing import AsyncClosing
from edge_sdk.connection import Connection
from edge_sdk.errors import InvalidRequest
from edge_sdk.kept_session import SessionLine
from edge_sdk.result import Result
from edge_sdk.stream import Stream
from edge_sdk.text_request import TextOptions, checked_prompt, text_request


class Conversation(AsyncClosing):
    """Turns of one chat: an async context manager.

    Every turn sends the chat in full, so its text has the law that a fresh client's would have;
    what it shares with the turn before is in the caches of server and draft already. A session
    that the server lost meanwhile is opened again.

    Example:
        async with client.conversation(system="You are brief.") as chat:
            async for piece in chat.say("What is the sea?"):
                print(piece.text, end="", flush=True)

    Args: see `EdgeClient.conversation`.
    """

    def __init__(
        self,
        client: Connection,
        *,
        system: str | None = None,
        messages: Sequence[Message] = (),
        **options: Unpack[TextOptions],
    ) -> None:
        before = list(checked_prompt(messages=messages).messages or ()) if messages else []
        first = [] if system is None else [Message("system", system)]
        if options.get("seed") is not None:
            raise InvalidRequest(
                "a conversation has no seed, since every turn needs one of its own; give one to "
                "say()",
                field="seed",
            )
        for turn in before:
            if not isinstance(turn, Message):
                raise InvalidRequest(
                    f"messages has {shown(turn)} ({kind(turn)}); give Message(role, content)",
                    field="messages",
                )
        self._messages: list[Message] = [*first, *before]
        self._client = client
        self._options = options
        self._line = SessionLine(client)
        self._turn: Stream | None = None
        self._closed = False
        # What is wrong with the options is told now, not at the first turn.
        text_request(client, checked_prompt("-"), options)
        client.streams.add(self)
        weakref.finalize(self, self._line.abandon).atexit = False

    @property
    def messages(self) -> Sequence[Message]:
        """What was said, the system's message included. A turn under way is not among them."""
        return tuple(self._messages)

    @property
    def waits_for_this_task(self) -> bool:
        """A conversation waits for nobody; its turns may."""
        return False

    def say(self, content: str, **options: Unpack[TextOptions]) -> Stream:
        """Say something; the answer comes piece by piece.

        The turn is in `messages` once its answer is complete. Of an answer that was left or
        failed in the middle neither side is kept; say it again.

        Args:
            content: what the user says.
            options: of this turn, over those of the conversation.

        Raises:
            InvalidRequest: an argument is wrong, the turn before is not over, or the
                conversation is closed.
        """
        if self._closed:
            raise InvalidRequest("the conversation is closed; begin a new one")
        if self._turn is not None and self._turn.under_way:
            raise InvalidRequest("the turn before is not over; read it to its end or close it")
        said = Message("user", content)
        prompt = checked_prompt(messages=[*self._messages, said])
        request = text_request(self._client, prompt, self._options | options)

        def completed(stream: Stream) -> None:
            self._messages += [said, Message("assistant", stream.text)]
            if stream.finish == "stop":
                self._line.cut(stream.tokens_kept)

        self._turn = Stream(self._client, request, line=self._line, completed=completed)
        return self._turn

    async def ask(self, content: str, **options: Unpack[TextOptions]) -> Result:
        """Say something and wait for the whole answer. Arguments as `say`.

        Raises:
            CosdError: of the class that says what went wrong.
        """
        return await self.say(content, **options).result()

    def undo(self) -> Sequence[Message]:
        """Take back the last turn, what was said and what was answered, and return both. To
        say it otherwise, call `say` again; to have it answered anew, say the same again.

        Raises:
            InvalidRequest: there is none, or one is under way.
        """
        if self._turn is not None and self._turn.under_way:
            raise InvalidRequest("a turn is under way; close it before one is taken back")
        last = [message.role for message in self._messages[-2:]]
        if last != ["user", "assistant"]:
            raise InvalidRequest("there is no turn that could be taken back")
        taken = tuple(self._messages[-2:])
        del self._messages[-2:]
        return taken

    async def aclose(self) -> None:
        """End the turn under way and the session on the server. Idempotent."""
        self._closed = True
        if self._turn is not None:
            await self._turn.aclose()
        self._line.drop()
        self._client.streams.discard(self)
