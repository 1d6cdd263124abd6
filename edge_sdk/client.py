"""The client that apps embed."""

from __future__ import annotations

import operator
import secrets
from collections.abc import Sequence

from edge_sdk.chat import Message
from edge_sdk.connection import Connection
from edge_sdk.decoding.method import Method
from edge_sdk.decoding.registry import method_named
from edge_sdk.errors import EmptyPrompt, InvalidRequest
from edge_sdk.sampling import Sampling
from edge_sdk.session import Request
from edge_sdk.stream import Stream
from edge_sdk.vocab.stop import StopStrings
from edge_sdk.wire import Generation, Prompt
from edge_sdk.wire.limits import MAX_DRAFT


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
        api_key: bearer key of the server.
        timeouts, retry: how long to wait and when to try again.
        verify: TLS verification; an `ssl.SSLContext` for own authorities.
        http_client: an `httpx.AsyncClient` to use; it is not closed.
        cache: folder for byte tables of targets, by default in `COSD_HOME`; None keeps nothing
            on disk.

    One draft model follows one text: generations that draft run one after another.
    """

    def generate(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        prompt_ids: Sequence[int] | None = None,
        method: Method | str = "hybrid",
        sampling: Sampling | None = None,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        seed: int | None = None,
        gamma: int = 3,
    ) -> Stream:
        """Generate a text.

        Args:
            prompt: text to go on from; or give `messages` or target ids as `prompt_ids`.
            method: a decoding method or its name.
            sampling: transforms of the target's law; by default temperature 1, and 0 for
                `greedy`.
            max_tokens: most target tokens.
            stop: strings that end the text; they are not part of it.
            seed: 64 bits; by default fresh ones.
            gamma: tokens drafted a round.

        Raises:
            InvalidRequest: an argument is wrong; the message names it.
        """
        chosen = method_named(method) if isinstance(method, str) else method
        if sampling is None:
            sampling = Sampling(temperature=0.0 if chosen.name == "greedy" else 1.0)
        chosen.check(sampling)
        gamma = _integer("gamma", gamma)
        if not 1 <= gamma <= MAX_DRAFT:
            raise InvalidRequest(
                f"gamma is {gamma}; it must be within [1, {MAX_DRAFT}]", field="gamma"
            )
        StopStrings(stop)
        given = (prompt, messages, prompt_ids)
        if any(part is not None and len(part) == 0 for part in given):
            raise EmptyPrompt("the prompt is empty; give at least one character", field="prompt")
        if not isinstance(prompt, str | None):
            raise InvalidRequest(
                f"the prompt is {type(prompt).__name__}, not a string; chat goes into messages=, "
                f"target ids into prompt_ids=",
                field="prompt",
            )
        if chosen.drafts and not self.has_draft:
            _ = self.draft
        request = Request(
            prompt=Prompt(
                text=prompt,
                messages=None if messages is None else tuple(messages),
                ids=None
                if prompt_ids is None
                else tuple(_integer("prompt_ids", token) for token in prompt_ids),
            ),
            method=chosen,
            generation=Generation(
                method=chosen.name,
                sampling=sampling,
                max_tokens=_integer("max_tokens", max_tokens),
                seed=secrets.randbits(64) if seed is None else _integer("seed", seed),
                options=chosen.options(),
            ),
            gamma=1 if chosen.keeps_sure else gamma,
            stop=tuple(stop),
        )
        return Stream(self, request)


def _integer(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise InvalidRequest(f"{name} is {value!r}; it must be an integer", field=name) from error
