"""Writing one text, or one turn of a chat, with the SDK."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

from cosd_app.live import LiveFigures
from cosd_app.marks import Spans
from cosd_app.state import Choices, Figures, Span, State, Turn
from cosd_app.storage import Storage
from edge_sdk import Conversation, EdgeClient, Message, Sampling
from edge_sdk.errors import CosdError, EmptyPrompt, InvalidRequest
from edge_sdk.stream import Stream
from edge_sdk.text.tokens import Origin

_KEEP_SECONDS: Final = 2.0


class Writer:
    """What is being written.

    Args:
        tell: takes the fields of `State` that changed.
        storage: keeps a text under way, so that it outlives the app.
        clock: seconds, never backwards.
    """

    def __init__(
        self, tell: Callable[..., None], storage: Storage, clock: Callable[[], float]
    ) -> None:
        self._tell = tell
        self._storage = storage
        self._clock = clock
        self._chat: Conversation | None = None
        self._turns: list[Turn] = []
        self._prompt = ""
        self._spans: Spans | None = None
        self._writing = False

    async def write(
        self, client: EdgeClient, choices: Choices, prompt: str, *, seed: int | None
    ) -> None:
        """Write a text or an answer to its end.

        Raises:
            CosdError: of the class that says what went wrong; what came before it is told.
        """
        if not prompt.strip():
            raise EmptyPrompt("the prompt is empty; type a few words")
        options = _options(choices, seed)
        if not choices.chat:
            await self.end_chat()
            await self._read(client.generate(prompt, **options), prompt, ())
            return
        if self._chat is None:
            self._chat = client.conversation(
                messages=[Message(turn.role, turn.text) for turn in self._turns]
            )
        spans = await self._read(self._chat.say(prompt, **options), prompt, ())
        self._turns += [Turn("user", (Span(prompt, Origin.SERVER),)), Turn("assistant", spans)]
        self._tell(turns=tuple(self._turns), prompt="", spans=())

    async def go_on(self, client: EdgeClient, state: State) -> None:
        """Write on after the text of `state`.

        Raises:
            InvalidRequest: there is none, or it is a chat's.
        """
        if state.choices.chat or not state.spans:
            raise InvalidRequest("there is no text to go on with")
        prompt = state.prompt + state.text
        stream = client.generate(prompt, **_options(state.choices, None))
        await self._read(stream, state.prompt, tuple(state.spans))

    def keep(self) -> None:
        """Write down what there is of a text under way."""
        if self._writing and self._spans is not None:
            with contextlib.suppress(CosdError):
                self._storage.save_text(self._prompt, self._spans())

    async def end_chat(self) -> None:
        """Let go of the client. The chat's turns stay, and the next turn sends them again."""
        chat, self._chat = self._chat, None
        if chat is not None:
            await chat.aclose()

    async def clear(self) -> None:
        """Forget text and chat."""
        await self.end_chat()
        self._turns = []
        self._storage.forget_text()
        self._tell(turns=(), prompt="", spans=(), figures=Figures(), finish="", seed=None)

    async def _read(
        self, stream: Stream, prompt: str, before: tuple[Span, ...]
    ) -> tuple[Span, ...]:
        spans, figures = Spans(before), LiveFigures(self._clock)
        self._prompt, self._spans, self._writing = prompt, spans, True
        self._tell(prompt=prompt, spans=before, figures=Figures(), finish="", seed=stream.seed)
        kept = self._clock()
        finish = ""
        try:
            async with stream:
                async for piece in stream:
                    spans.feed(piece.tokens)
                    self._tell(spans=spans(), figures=figures(stream.stats))
                    if self._clock() - kept >= _KEEP_SECONDS:
                        kept = self._clock()
                        self.keep()
            finish = stream.finish or ""
        except BaseException as error:
            finish = "" if isinstance(error, Exception) else "stopped"
            raise
        finally:
            spans.close()
            self._writing = False
            self._storage.forget_text()
            self._tell(spans=spans(), figures=figures(stream.stats, over=True), finish=finish)
        return spans()


def _options(choices: Choices, seed: int | None) -> dict[str, Any]:
    temperature = 0.0 if choices.method == "greedy" else choices.temperature
    return {
        "method": choices.method,
        "sampling": Sampling(temperature=temperature),
        "max_tokens": choices.max_tokens,
        "seed": seed,
    }
