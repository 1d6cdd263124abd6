"""What the app shows: values only, made by the controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from edge_sdk.text.tokens import Origin


class Phase(StrEnum):
    """What the app is doing."""

    SETUP = "setup"  # no server yet, or no draft that it could use
    READY = "ready"
    CONNECTING = "connecting"
    DOWNLOADING = "downloading"
    GENERATING = "generating"
    STOPPING = "stopping"


class Link(StrEnum):
    """Whether the server answers."""

    UNKNOWN = "unknown"
    ONLINE = "online"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring text of one origin."""

    text: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Turn:
    """A chat turn that is over, or the prompt of the one that is not."""

    role: str
    spans: Sequence[Span]

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft on the server.

    Attributes:
        bytes: of all its files.
        sha256: of its manifest; another one is another draft.
        installed: this very draft is on the device.
    """

    name: str
    model: str
    bytes: int
    sha256: str
    installed: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """A download: bytes that are here of bytes in all."""

    done: int
    total: int

    @property
    def share(self) -> float:
        return self.done / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a text costs, as it comes.

    Attributes:
        tokens: emitted so far.
        tokens_per_second: over the text so far.
        acceptance: accepted / examined drafted tokens; None until one was examined.
        up_bytes, down_bytes: on the link, framing included.
        round_trip: mean seconds from sending a block to its verdict; None before the first.
        rates: tokens a second of the last moments, oldest first.
    """

    tokens: int = 0
    tokens_per_second: float = 0.0
    acceptance: float | None = None
    up_bytes: int = 0
    down_bytes: int = 0
    round_trip: float | None = None
    rates: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong and what to do, in plain words.

    Attributes:
        title: what is wrong, for somebody who knows no technical word.
        advice: what to do.
        detail: the exact sentence of the error, for a bug report.
    """

    title: str
    advice: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the user set; kept over restarts. The key is not among them.

    Attributes:
        server: address, e.g. "https://host:8077"; empty: none yet.
        draft: name of the draft in use; empty: none.
        chat: texts are answers in a chat, not continuations.
        theme: "system", "light" or "dark".
    """

    server: str = ""
    draft: str = ""
    method: str = "hybrid"
    temperature: float = 0.7
    max_tokens: int = 256
    chat: bool = False
    theme: str = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that a screen needs, and nothing secret.

    Attributes:
        model: name of the server's model, once it answered.
        methods: decoding methods that the server offers.
        turns: of the chat, those that are over.
        prompt, spans: what is being written, or was written last.
        finish: why it is over: "end", "length", "context", "stopped" by the user or "cut off"
            with the app; empty while it is under way, and after an error.
    """

    phase: Phase = Phase.SETUP
    choices: Choices = Choices()
    has_key: bool = False
    link: Link = Link.UNKNOWN
    model: str = ""
    methods: Sequence[str] = ()
    offers: Sequence[Offer] = ()
    progress: Progress | None = None
    turns: Sequence[Turn] = ()
    prompt: str = ""
    spans: Sequence[Span] = ()
    figures: Figures = Figures()
    finish: str = ""
    seed: int | None = None
    problem: Problem | None = None

    @property
    def text(self) -> str:
        """The text that is being written, or was written last."""
        return "".join(span.text for span in self.spans)

    @property
    def exposed(self) -> bool:
        """The key travels where others may read it: no TLS, and not within this device."""
        host = urlsplit(self.choices.server).hostname or ""
        local = host in ("localhost", "::1") or host.startswith("127.")
        return self.has_key and self.choices.server.startswith("http://") and not local

    @property
    def busy(self) -> bool:
        """Something is under way that a new action would disturb."""
        return self.phase not in (Phase.SETUP, Phase.READY)
