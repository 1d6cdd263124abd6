"""The client that apps embed."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Literal, cast

import numpy as np

from edge_sdk.adapt import Controller
from edge_sdk.arguments import integer, kind, require_text, shown
from edge_sdk.chat import Message
from edge_sdk.connection import Connection
from edge_sdk.control import Control, Fixed
from edge_sdk.decoding.method import Method
from edge_sdk.decoding.registry import method_named
from edge_sdk.errors import EmptyPrompt, InvalidRequest
from edge_sdk.sampling import Sampling
from edge_sdk.session import Request
from edge_sdk.stream import Stream
from edge_sdk.vocab.stop import StopStrings, stop_list
from edge_sdk.wire import Generation, Prompt
from edge_sdk.wire.limits import MAX_DRAFT, MAX_WINDOW


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
        stop: Iterable[str] | None = (),
        seed: int | None = None,
        gamma: int | Literal["auto"] = "auto",
        window: int | None = None,
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
            gamma: tokens drafted a round; "auto" measures and chooses, drafts ahead where that
                pays, and lets the server decode alone where drafting does not. The text's law
                is the same; texts of `hybrid` and `candidates` repeat for a seed only with a
                fixed gamma.
            window: blocks in flight, the one being drafted included; 1 sends one at a time.
                By default it is chosen too, or 1 if gamma is fixed.

        Raises:
            InvalidRequest: an argument is wrong; the message names it.
        """
        chosen = _method(method)
        if sampling is None:
            sampling = Sampling(temperature=0.0 if chosen.name == "greedy" else 1.0)
        elif not isinstance(sampling, Sampling):
            raise InvalidRequest(
                f"sampling is {shown(sampling)} ({kind(sampling)}); give "
                f"Sampling(temperature=..., top_p=...)",
                field="sampling",
            )
        chosen.check(sampling)
        control = self._control(chosen, gamma, window)
        stop = stop_list(stop)
        StopStrings(stop)
        if not isinstance(prompt, str | None):
            raise InvalidRequest(
                f"the prompt is {shown(prompt)} ({kind(prompt)}), not a string; chat goes into "
                f"messages=, target ids into prompt_ids=",
                field="prompt",
            )
        if prompt is not None:
            require_text("the prompt", prompt, "prompt")
        turns, ids = _turns(messages), _ids(prompt_ids)
        if any(part is not None and len(part) == 0 for part in (prompt, turns, ids)):
            raise EmptyPrompt("the prompt is empty; give at least one character", field="prompt")
        if chosen.drafts and not self.has_draft:
            _ = self.draft
        request = Request(
            prompt=Prompt(
                text=prompt,
                messages=turns,
                ids=ids,
            ),
            method=chosen,
            generation=Generation(
                method=chosen.name,
                sampling=sampling,
                max_tokens=integer("max_tokens", max_tokens),
                seed=secrets.randbits(64) if seed is None else integer("seed", seed),
                options=chosen.options(),
            ),
            control=control,
            stop=stop,
            adaptive=not isinstance(control, Fixed),
        )
        return Stream(self, request)

    def _control(self, method: Method, gamma: object, window: object) -> Control:
        ahead = None if window is None else _within("window", window, MAX_WINDOW)
        fixed = None if gamma == "auto" else _within("gamma", gamma, MAX_DRAFT)
        if method.keeps_sure:
            return Fixed(gamma=1)
        if fixed is not None:
            return Fixed(gamma=fixed, window=ahead or 1)
        if ahead is not None:
            return Controller(windows=(ahead,), plain=method.lossless)
        if method.name not in self._controllers:
            self._controllers[method.name] = Controller(plain=method.lossless)
        return self._controllers[method.name]


def _within(name: str, value: object, most: int) -> int:
    number = integer(name, value)
    if not 1 <= number <= most:
        raise InvalidRequest(f"{name} is {shown(value)}; it must be within [1, {most}]", field=name)
    return number


def _method(method: object) -> Method:
    if isinstance(method, str):
        return method_named(method)
    if isinstance(method, Method):
        return method
    if isinstance(method, type) and issubclass(method, Method):
        raise InvalidRequest(
            f"method is the class {method.__name__}; give an instance, {method.__name__}()",
            field="method",
        )
    raise InvalidRequest(
        f"method is {shown(method)} ({kind(method)}); give the name of a method, such as "
        f"'hybrid', or an instance of one",
        field="method",
    )


def _turns(messages: object) -> tuple[Message, ...] | None:
    if messages is None:
        return None
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise InvalidRequest(
            f"messages is {shown(messages)} ({kind(messages)}); give a list of "
            f"Message(role, content)",
            field="messages",
        )
    turns = tuple(messages)
    for turn in turns:
        if isinstance(turn, Message):
            require_text("a chat message", turn.content, "messages")
    return turns


def _ids(prompt_ids: object) -> tuple[int, ...] | None:
    if prompt_ids is None:
        return None
    array = isinstance(prompt_ids, np.ndarray) and prompt_ids.ndim == 1
    if isinstance(prompt_ids, str | bytes | bytearray | memoryview) or not (
        array or isinstance(prompt_ids, Sequence)
    ):
        raise InvalidRequest(
            f"prompt_ids is {shown(prompt_ids)} ({kind(prompt_ids)}); give a list of integers",
            field="prompt_ids",
        )
    ids = tuple(integer("prompt_ids", token) for token in cast("Sequence[object]", prompt_ids))
    for token in ids:
        if not 0 <= token < 2**63:
            raise InvalidRequest(
                f"prompt_ids has {shown(token)}; an id is an integer from 0 to the size of the "
                f"target's vocabulary",
                field="prompt_ids",
            )
    return ids
