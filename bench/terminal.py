"""What a person sees: a text as it settles, and how far a measurement is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from edge_sdk.stream import Stream
from edge_sdk.text.tokens import Origin
from edge_sdk.text.transcript import Piece
from edge_sdk.vocab.utf8 import Utf8Decoder

_STYLES: Final = {Origin.ACCEPTED: "green", Origin.SETTLED: "bold yellow", Origin.SERVER: ""}
_LEGEND: Final = {
    Origin.ACCEPTED: "drafted here and accepted",
    Origin.SETTLED: "settled by the target",
}


def legend() -> Text:
    """One line that explains the colours."""
    text = Text()
    for origin, meaning in _LEGEND.items():
        text.append("■ ", _STYLES[origin])
        text.append(f"{meaning}   ")
    return text


async def show(stream: Stream, console: Console) -> None:
    """Print a text while it is generated, each token in the colour of its origin.

    What came before a fault or an interruption stays, and its line ends.
    """
    painter = _Painter(console)
    try:
        async with stream:
            async for piece in stream:
                painter.add(piece)
    finally:
        painter.close()


@contextmanager
def steps(name: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on the error stream; the function yielded moves it by one step."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bars:
        task = bars.add_task(name, total=total)
        yield lambda: bars.advance(task)


class _Painter:
    """Characters take the colour of the token that completes them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._decoder = Utf8Decoder()

    def add(self, piece: Piece) -> None:
        parts = [(self._decoder.feed(token.data), token.origin) for token in piece.tokens]
        self._print([(text, _STYLES[origin]) for text, origin in parts if text])

    def close(self) -> None:
        self._print([(self._decoder.flush() + "\n", "")])

    def _print(self, parts: Sequence[tuple[str, str]]) -> None:
        if self._console.is_terminal:
            self._console.print(Text.assemble(*parts), end="", soft_wrap=True)
        else:
            self._console.file.write("".join(text for text, _ in parts))
        self._console.file.flush()
