"""What a caller asks for, checked: the one definition of the arguments of a text."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Literal, TypedDict, cast

import numpy as np

from edge_sdk.adapt import Controller
from edge_sdk.arguments import integer, kind, require_text, shown
from edge_sdk.chat import Message
from edge_sdk.connection import Connection
from edge_sdk.decoding.method import Method
from edge_sdk.decoding.registry import method_named
from edge_sdk.errors import EmptyPrompt, InvalidRequest
from edge_sdk.sampling import Sampling
from edge_sdk.session import AUTO, Request
from edge_sdk.text.control import Control, Fixed
from edge_sdk.text.round import OnRound
from edge_sdk.vocab.stop import StopStrings, stop_list
from edge_sdk.wire import Generation, Prompt
from edge_sdk.wire.limits import MAX_DRAFT, MAX_WINDOW


class TextOptions(TypedDict, total=False):
    """Keyword arguments of every text, whichever call asks for it.

    Keys:
        method: a decoding method or its name ("hybrid"); "auto" takes, when the text begins, the
            lossless one that is expected to be fastest from what the texts before showed.
        sampling: transforms of the target's law; by default temperature 1, and 0 for `greedy`.
        max_tokens: most target tokens (256).
        stop: strings that end the text; they are not part of it.
        seed: 64 bits; by default fresh ones.
        gamma: tokens drafted a round; "auto", the default, measures and chooses, drafts ahead
            where that pays, and lets the server decode alone where drafting does not. The
            text's law is the same; texts of `hybrid` and `candidates` repeat for a seed only
            with a fixed gamma.
        window: blocks in flight, the one being drafted included; 1 sends one at a time. By
            default it is chosen too, or 1 if gamma is fixed.
        on_round: a function that is told every `Round` as it ends.
    """

    method: Method | str
    sampling: Sampling | None
    max_tokens: int
    stop: Iterable[str] | None
    seed: int | None
    gamma: int | Literal["auto"]
    window: int | None
    on_round: OnRound | None


def text_request(client: Connection, prompt: Prompt, options: TextOptions) -> Request:
    """A text of a client.

    Raises:
        InvalidRequest: an option is wrong or unknown; the message names it.
    """
    unknown = sorted(set(options) - TextOptions.__annotations__.keys())
    if unknown:
        raise InvalidRequest(
            f"there is no argument {unknown[0]!r}; a text has "
            f"{', '.join(TextOptions.__annotations__)}, and temperature, top_p and the like go "
            f"into sampling=Sampling(...)",
            field=unknown[0],
        )
    automatic = options.get("method") == AUTO
    # Until the text begins any lossless method stands for the one that is chosen then.
    method = _method("hybrid" if automatic else options.get("method", "hybrid"))
    sampling = _sampling(options.get("sampling"), method)
    control = _control(client, method, options, automatic=automatic)
    stop = stop_list(options.get("stop", ()))
    StopStrings(stop)
    if method.drafts and not client.has_draft:
        _ = client.draft
    seed = options.get("seed")
    return Request(
        prompt=prompt,
        method=method,
        generation=Generation(
            method=AUTO if automatic else method.name,
            sampling=sampling,
            max_tokens=integer("max_tokens", options.get("max_tokens", 256)),
            seed=secrets.randbits(64) if seed is None else integer("seed", seed),
            options=method.options(),
        ),
        control=control,
        stop=stop,
        on_round=_on_round(options.get("on_round")),
    )


def checked_prompt(
    prompt: object = None, *, messages: object = None, prompt_ids: object = None
) -> Prompt:
    """What a text continues: a string, messages or target ids.

    Raises:
        InvalidRequest: it is none of these, or more than one.
        EmptyPrompt: it is empty.
    """
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
    return Prompt(text=prompt, messages=turns, ids=ids)


def _on_round(on_round: OnRound | None) -> OnRound | None:
    if on_round is not None and not callable(on_round):
        raise InvalidRequest(
            f"on_round is {shown(on_round)} ({kind(on_round)}); give a function that takes a Round",
            field="on_round",
        )
    return on_round


def _sampling(sampling: object, method: Method) -> Sampling:
    if sampling is None:
        sampling = Sampling(temperature=0.0 if method.name == "greedy" else 1.0)
    elif not isinstance(sampling, Sampling):
        raise InvalidRequest(
            f"sampling is {shown(sampling)} ({kind(sampling)}); give "
            f"Sampling(temperature=..., top_p=...)",
            field="sampling",
        )
    method.check(sampling)
    return sampling


def _control(
    client: Connection, method: Method, options: TextOptions, *, automatic: bool
) -> Control:
    gamma, window = options.get("gamma", "auto"), options.get("window")
    ahead = None if window is None else _within("window", window, MAX_WINDOW)
    fixed = None if gamma == "auto" else _within("gamma", gamma, MAX_DRAFT)
    if method.keeps_sure:
        return Fixed(gamma=1)
    if fixed is not None:
        return Fixed(gamma=fixed, window=ahead or 1)
    # While the server decodes alone there is nothing that the draft could go on from.
    plain = method.lossless and client.outage.policy != "draft"
    if ahead is not None:
        return Controller(windows=sorted({1, ahead}), plain=plain)
    return client.controller(AUTO if automatic else method.name, plain=plain)


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
