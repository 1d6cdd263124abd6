"""The client that apps embed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from edge_sdk.chat import Message
from edge_sdk.connection import Connection
from edge_sdk.conversation import Conversation
from edge_sdk.result import Result
from edge_sdk.stream import Stream
from edge_sdk.text_request import TextOptions, checked_prompt, text_request


class EdgeClient(Connection):
    """A draft model on this device and a server that verifies it.

    Example:
        async with EdgeClient("http://127.0.0.1:8077", draft="smollm2-draft") as client:
            async for piece in client.generate("The sea is", sampling=Sampling(temperature=0.7)):
                print(piece.text, end="", flush=True)

    Args:
        base_url: address of the server.
        draft: a draft model, or the folder of an exported one; None for `autoregressive` only.
            A model that was passed in is not closed with the client.
        api_key: bearer key of the server, or an async function that returns it.
        timeouts, retry: how long to wait and when to try again.
        verify: TLS verification; an `ssl.SSLContext` for own authorities.
        ca_file: PEM file of the authorities to trust instead of the public ones.
        transport: "auto" sends a text's rounds over a WebSocket where that works and over HTTP
            where not; "http" and "websocket" leave no choice. With an `http_client`, "auto" is
            "http".
        http_client: an `httpx.AsyncClient` to use; it is not closed.
        cache: folder for byte tables of targets; "home", the default, is one in `COSD_HOME`;
            None keeps nothing on disk.
        offline: what a text does when the link is down for longer than the retries: "wait" until
            it is back, "fail", or "draft": go on with the draft alone, and take back what the
            server does not confirm once it is there again (docs/sdk.md).
        on_link: a function that is told False when the link is down and True when it is back.

    One draft model follows one text: generations that draft run one after another.
    """

    def generate(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        prompt_ids: Sequence[int] | None = None,
        **options: Unpack[TextOptions],
    ) -> Stream:
        """Generate a text, piece by piece.

        Args:
            prompt: text to go on from; or give `messages` of a chat, or target ids as
                `prompt_ids`.
            options: see `TextOptions`: method, sampling, max_tokens, stop, seed, gamma, window.

        Raises:
            InvalidRequest: an argument is wrong; the message names it.
        """
        asked = checked_prompt(prompt, messages=messages, prompt_ids=prompt_ids)
        return Stream(self, text_request(self, asked, options))

    async def complete(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        prompt_ids: Sequence[int] | None = None,
        **options: Unpack[TextOptions],
    ) -> Result:
        """Generate a text and wait for all of it. Arguments as `generate`.

        Raises:
            CosdError: of the class that says what went wrong.
        """
        return await self.generate(
            prompt, messages=messages, prompt_ids=prompt_ids, **options
        ).result()

    def conversation(
        self,
        *,
        system: str | None = None,
        messages: Sequence[Message] = (),
        **options: Unpack[TextOptions],
    ) -> Conversation:
        """A chat whose turns find draft and server warm.

        Args:
            system: what the assistant is told before the first turn.
            messages: turns that were said before, to go on from.
            options: of every turn, see `TextOptions`; a turn may have others.

        Raises:
            InvalidRequest: an argument is wrong; the message names it.
        """
        return Conversation(self, system=system, messages=messages, **options)
