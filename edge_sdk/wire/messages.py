"""Every message of the protocol. Field order is the wire format: only append."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from edge_sdk.arguments import kind, shown
from edge_sdk.chat import Message
from edge_sdk.errors import InvalidRequest
from edge_sdk.sampling import Sampling
from edge_sdk.wire import limits


class Finish(IntEnum):
    """Why a text ended, as far as the server knows; stop strings end it on the device."""

    NONE = 0
    END = 1  # an end token
    LENGTH = 2  # max_tokens
    CONTEXT = 3  # the target's context is full


@dataclass(frozen=True, slots=True)
class Prompt:
    """Exactly one of: text, chat messages, or target ids."""

    text: str | None = None
    messages: tuple[Message, ...] | None = None
    ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        given = [part for part in (self.text, self.messages, self.ids) if part is not None]
        if len(given) != 1:
            raise InvalidRequest(
                "a prompt is exactly one of text, messages and ids", field="prompt"
            )
        for turn in self.messages or ():
            if not isinstance(turn, Message):
                raise InvalidRequest(
                    f"messages has a {kind(turn)}; give Message(role, content)",
                    field="messages",
                )
        texts = [self.text or "", *(turn.content for turn in self.messages or ())]
        if sum(map(len, texts)) > limits.MAX_TEXT:
            raise InvalidRequest(
                f"the prompt is over the limit of {limits.MAX_TEXT} characters", field="prompt"
            )
        if self.messages is not None and len(self.messages) > limits.MAX_MESSAGES:
            raise InvalidRequest(
                f"{len(self.messages)} messages are over the limit of {limits.MAX_MESSAGES}",
                field="prompt.messages",
            )


@dataclass(frozen=True, slots=True)
class Generation:
    """What is to be generated and how.

    Attributes:
        method: name of the decoding method.
        sampling: transforms of the law.
        max_tokens: most target tokens of the text.
        seed: 64 bits, the root of every coin.
        options: options of the method.
    """

    method: str
    sampling: Sampling
    max_tokens: int
    seed: int
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("max_tokens", self.max_tokens), ("seed", self.seed)):
            if type(value) is not int:
                raise InvalidRequest(f"{name} is {shown(value)}; it must be an integer", field=name)
        if not 1 <= self.max_tokens <= limits.MAX_TOKENS:
            raise InvalidRequest(
                f"max_tokens is {shown(self.max_tokens)}; "
                f"it must be within [1, {limits.MAX_TOKENS}]",
                field="max_tokens",
            )
        if not 0 <= self.seed < 2**64:
            raise InvalidRequest(
                f"seed is {shown(self.seed)}; it must be an integer of 64 bits, 0 to 2**64 - 1",
                field="seed",
            )


@dataclass(frozen=True, slots=True)
class RegisterPair:
    """V_C of a draft with this server's target.

    Attributes:
        target_fingerprint: SHA-256 (hex) of the target's byte table.
        bitmap: one bit an id of the target, little end first; set for ids in V_C.
    """

    target_fingerprint: str
    bitmap: bytes


@dataclass(frozen=True, slots=True)
class PairRegistered:
    pair_id: str
    size: int  # |V_C|


@dataclass(frozen=True, slots=True)
class Open:
    """Begin a session, or take one up again after it was lost.

    Attributes:
        protocol: version of the wire.
        pair_id: registered V_C, None for a client without a draft.
        prompt: what the text continues.
        generation: how.
        generated: target ids of the text so far, when a session is taken up again.
        next_sequence: sequence number of the next request.
        state: state of the method to take up again (`Verdict.state`).
    """

    protocol: int
    pair_id: str | None
    prompt: Prompt
    generation: Generation
    generated: tuple[int, ...] = ()
    next_sequence: int = 0
    state: float | None = None

    def __post_init__(self) -> None:
        _sequence("next_sequence", self.next_sequence)


@dataclass(frozen=True, slots=True)
class Opened:
    """Attributes:
    prompt_tokens: target ids of the prompt.
    context: most tokens, prompt and text together, that the target holds.
    """

    prompt_tokens: int
    context: int


@dataclass(frozen=True, slots=True)
class Verify:
    """One block of drafted tokens.

    Attributes:
        sequence: number of this request in its session.
        base: target tokens before the first draft, `settled` and `kept` included.
        draft: packed ids, and q where the method needs it (`edge_sdk.wire.packing`).
        settled: token that the device settled after the last rejection.
        parent: sequence number whose full acceptance the block assumes.
        more: a further block follows as if this one were accepted whole, so that no bonus
            is drawn.
        kept: packed ids of tokens that the device kept without asking, after `settled`; only
            for methods that allow it.
    """

    sequence: int
    base: int
    draft: bytes = b""
    settled: int | None = None
    parent: int | None = None
    more: bool = False
    kept: bytes = b""

    def __post_init__(self) -> None:
        _sequence("sequence", self.sequence)
        _sequence("base", self.base)
        if self.parent is not None:
            _sequence("parent", self.parent)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a block.

    Attributes:
        sequence: of the verify it answers.
        accepted: drafted tokens kept; -1 if the block was stale and dropped.
        settled: target id that the server settled after them, if it did.
        finish: a `Finish`.
        rejection: what the device needs to settle the rejected position itself.
        state: state of the method, where a session needs it to be taken up again.
        nll: summed -ln p of the tokens this verdict made certain, where the method knows it.
    """

    sequence: int
    accepted: int
    settled: int | None = None
    finish: int = 0
    rejection: bytes | None = None
    state: float | None = None
    nll: float | None = None

    @property
    def stale(self) -> bool:
        return self.accepted < 0


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask for more to settle the rejected position with.

    Attributes:
        sequence: number of this request in its session.
        block: 1, 2, ... since the rejection.
    """

    sequence: int
    block: int

    def __post_init__(self) -> None:
        _sequence("sequence", self.sequence)
        if not 1 <= self.block <= limits.MAX_BLOCKS:
            raise InvalidRequest(
                f"block is {self.block}; it must be within [1, {limits.MAX_BLOCKS}]", field="block"
            )


@dataclass(frozen=True, slots=True)
class Answer:
    """The further block that was asked for."""

    sequence: int
    rejection: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """Keep the first `length` generated tokens of the text."""

    sequence: int
    length: int

    def __post_init__(self) -> None:
        _sequence("sequence", self.sequence)
        _sequence("length", self.length)


@dataclass(frozen=True, slots=True)
class Truncated:
    length: int


@dataclass(frozen=True, slots=True)
class Extend:
    """Go on with a new prompt in full; what it shares with the text so far stays in the cache."""

    sequence: int
    prompt: Prompt
    generation: Generation

    def __post_init__(self) -> None:
        _sequence("sequence", self.sequence)


@dataclass(frozen=True, slots=True)
class Extended:
    """Attributes:
    prompt_tokens: target ids of the new prompt.
    reused: leading ids that need no new computation.
    """

    prompt_tokens: int
    reused: int


@dataclass(frozen=True, slots=True)
class Generate:
    """Let the server decode alone from `base` generated tokens on, streamed.

    Attributes:
        base: target tokens before the first one of the stream, `settled` included.
        limit: most tokens of the stream; None goes on to the end of the text.
        settled: token that the device settled after the last rejection.
    """

    base: int
    limit: int | None = None
    settled: int | None = None

    def __post_init__(self) -> None:
        _sequence("base", self.base)
        if self.limit is not None and not 1 <= self.limit <= limits.MAX_TOKENS:
            raise InvalidRequest(
                f"limit is {self.limit}; it must be within [1, {limits.MAX_TOKENS}]", field="limit"
            )


@dataclass(frozen=True, slots=True)
class Generated:
    """One token of a stream, or its end.

    Attributes:
        token: target id; None in a message that only reports `error`.
        finish: a `Finish`.
        error: wire code of what broke the stream.
        message: its sentence.
    """

    token: int | None
    finish: int = 0
    error: str | None = None
    message: str | None = None


def _sequence(name: str, value: int) -> None:
    if not 0 <= value <= limits.MAX_SEQUENCE:
        raise InvalidRequest(
            f"{name} is {value}; it must be within [0, {limits.MAX_SEQUENCE}]", field=name
        )
