"""SIMULATION: `cosd serve` whose target takes longer than it does, as a bigger one would.

python -m bench.sdk_padded serve ...   with the milliseconds a pass in BENCH_PAD_TARGET_MS
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch
import typer

from bench.guarded import end_with_parent
from bench.program import run
from bench.sdk_plan import PAD_VARIABLE
from edge_sdk.chat import Message
from edge_sdk.errors import InvalidRequest
from edge_sdk.vocab import Vocabulary
from server_app.command import load_app, settings_from, source_of
from server_app.listening import address_of, bound
from server_app.observability import logs
from server_app.options import takes_settings
from server_app.process import Process
from server_app.settings import Settings
from server_app.target.model import Chunk, TargetModel, TargetSequence

log = logging.getLogger("server_app")
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class PaddedTarget(TargetModel):
    """The same target, whose every pass takes so many seconds more, with the cores idle."""

    def __init__(self, inner: TargetModel, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def vocabulary(self) -> Vocabulary:
        return self._inner.vocabulary

    @property
    def context(self) -> int:
        return self._inner.context

    @property
    def device(self) -> torch.device:
        return self._inner.device

    @property
    def dtype(self) -> torch.dtype:
        return self._inner.dtype

    @property
    def has_chat_template(self) -> bool:
        return self._inner.has_chat_template

    @property
    def cache_limit(self) -> int:
        return self._inner.cache_limit

    @property
    def cache_used(self) -> int:
        return self._inner.cache_used

    def limit_cache(self, tokens: int) -> None:
        self._inner.limit_cache(tokens)

    def encode(self, text: str) -> list[int]:
        return self._inner.encode(text)

    def render(self, messages: Sequence[Message]) -> list[int]:
        return self._inner.render(messages)

    def new_sequence(self) -> TargetSequence:
        return self._inner.new_sequence()

    def forward(self, chunks: Sequence[Chunk]) -> list[torch.Tensor]:
        result = self._inner.forward(chunks)
        time.sleep(self._seconds)
        return result

    def rollback(self, sequence: TargetSequence, length: int) -> None:
        self._inner.rollback(sequence, length)

    def fork(self, sequence: TargetSequence, length: int) -> TargetSequence:
        return self._inner.fork(sequence, length)

    def release(self, sequence: TargetSequence) -> None:
        self._inner.release(sequence)


@app.callback()
def program() -> None:
    """What `cosd` is to `cosd serve`."""


@app.command()
@takes_settings(Settings)
def serve(**given: Any) -> None:
    """`cosd serve` with a target that is padded."""
    settings = settings_from({name: value for name, value in given.items() if value is not None})
    logs.configure(settings.log_level, settings.log_format)
    source, seconds = source_of(settings.target), pad_seconds()
    with bound(settings.host, settings.port) as listener:
        address = address_of(listener)
        process = Process(
            lambda progress: load_app(
                settings, source, progress, served=lambda model: PaddedTarget(model, seconds)
            ),
            on_ready=lambda: log.info("listening on %s", address),
            keep_alive=settings.keep_alive,
            drain_seconds=settings.drain_seconds,
        )
        process.run(sockets=[listener])
    if process.boot.failure is not None:
        raise process.boot.failure


def pad_seconds() -> float:
    """What `PAD_VARIABLE` says, in seconds.

    Raises:
        InvalidRequest: it is not there, or no duration.
    """
    text = os.environ.get(PAD_VARIABLE, "")
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = math.nan
    if not 0 <= milliseconds < math.inf:
        raise InvalidRequest(
            f"{PAD_VARIABLE} is {text!r}; set it to the milliseconds that each pass takes longer",
            field=PAD_VARIABLE,
        )
    return milliseconds / 1e3


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, name="guard", daemon=True).start()
    sys.exit(run(app, "bench.sdk_padded"))
