"""`cosd generate`: write a text with a server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from edge_sdk.chat import Message
from edge_sdk.cli.figures import figures
from edge_sdk.cli.options import DEFAULT_SERVER, DraftOption, ServerOption, draft_folder
from edge_sdk.cli.output import check_stdout, write
from edge_sdk.client import EdgeClient
from edge_sdk.decoding.autoregressive import Autoregressive
from edge_sdk.decoding.coupled import Coupled
from edge_sdk.decoding.greedy import Greedy
from edge_sdk.decoding.method import Method
from edge_sdk.decoding.registry import METHODS, method_named
from edge_sdk.errors import InvalidRequest, Unauthorized
from edge_sdk.sampling import Sampling
from edge_sdk.session import AUTO
from edge_sdk.stream import Stream
from edge_sdk.trace import Trace

if TYPE_CHECKING:
    from edge_sdk.draft.onnx import OnnxDraft

_KEY = "COSD_API_KEY"
# Their texts depend on the seed alone; those of the others on how they were cut into blocks too.
_OF_THE_SEED = (Coupled.name, Greedy.name, Autoregressive.name)


def _labelled() -> str:
    return ", ".join(
        f"{name} ({'lossless' if cls.lossless else 'LOSSY'})" for name, cls in METHODS.items()
    )


def generate(
    prompt: Annotated[
        str | None, typer.Argument(help="Text to go on from; read from stdin if left out.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    draft: DraftOption = None,
    method: Annotated[
        str,
        typer.Option(
            help=f"{AUTO}, which takes the lossless one expected to be fastest, or one of "
            f"{_labelled()}."
        ),
    ] = "hybrid",
    option: Annotated[
        list[str] | None,
        typer.Option(help="Option of the method as NAME=VALUE; may be repeated."),
    ] = None,
    gamma: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="Tokens drafted a round; auto measures and chooses. See --seed.",
        ),
    ] = "auto",
    window: Annotated[
        int | None,
        typer.Option(
            help="Blocks in flight, the one being drafted included; 1 drafts nothing ahead.",
            show_default="chosen; 1 with a number as gamma",
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="0 takes the likeliest token.", show_default="1, greedy: 0")
    ] = None,
    top_k: Annotated[int, typer.Option(help="Keep the k likeliest tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Keep the likeliest tokens up to this mass.")] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Keep tokens at least this share as likely as the likeliest.")
    ] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="1 is off.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(help="Most target tokens of the text.")] = 256,
    stop: Annotated[
        list[str] | None, typer.Option(help="String that ends the text; may be repeated.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="64 bits; the same seed repeats a text. Where gamma is auto, only with "
            f"{', '.join(_OF_THE_SEED)}.",
            show_default="drawn",
        ),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Send the prompt as a chat message.")
    ] = False,
    threads: Annotated[int | None, typer.Option(help="CPU threads of the draft.")] = None,
    stats: Annotated[bool, typer.Option(help="Print what it cost to stderr.")] = True,
    offline: Annotated[
        str,
        typer.Option(
            metavar="fail|wait",
            help="When the link is down for longer than the retries: fail, or wait for it.",
        ),
    ] = "fail",
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what happened when to FILE, for ui.perfetto.dev or chrome://tracing.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a text: the draft runs here, the server checks it.

    The key of the server, if it wants one, comes from COSD_API_KEY.

    Example: `cosd generate "The sea is" --draft my-draft --temperature 0.7`
    """
    check_stdout()
    text = _from_stdin() if prompt is None else prompt
    if temperature is None:
        temperature = 0.0 if method == "greedy" else 1.0
    sampling = Sampling(
        repetition_penalty=repetition_penalty,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
    )
    chosen = _method(method, _options(option or []))
    key = os.environ.get(_KEY) or None
    tokens_a_round = _gamma(gamma)
    policy = _offline(offline)
    folder = draft_folder(draft, method=method)
    tracing = None if trace is None else Trace(trace)

    async def run() -> None:
        model = await asyncio.to_thread(_open, folder, threads) if folder is not None else None
        try:
            async with EdgeClient(server, draft=model, api_key=key, offline=policy) as client:
                stream = client.generate(
                    None if chat else text,
                    messages=[Message("user", text)] if chat else None,
                    method=chosen,
                    sampling=sampling,
                    max_tokens=max_tokens,
                    stop=stop or (),
                    seed=seed,
                    gamma=tokens_a_round,
                    window=window,
                    on_round=None if tracing is None else tracing.round,
                )
                try:
                    await _print(stream, tracing)
                except BrokenPipeError:
                    raise
                except BaseException:
                    # Also of a text that broke off, one would know what it cost.
                    if stats and stream.stats.tokens:
                        _report(stream, tokens_a_round)
                    raise
                if stats:
                    _report(stream, tokens_a_round)
        finally:
            if model is not None:
                model.close()

    try:
        with tracing or contextlib.nullcontext():
            asyncio.run(run())
    except InvalidRequest as error:
        if error.field != "api_key":
            raise
        raise InvalidRequest(f"{_KEY} is no usable key: {error.message}", field=_KEY) from error
    except Unauthorized as error:
        given = "came from" if key else "is read from"
        raise Unauthorized(f"{error.message} (the key {given} {_KEY})") from error


def _method(name: str, options: dict[str, str | int | float]) -> Method | str:
    if name != AUTO:
        return method_named(name, options)
    if options:
        raise InvalidRequest(
            f"--option goes with a method by name, not with --method {AUTO}", field="option"
        )
    return AUTO


def _from_stdin() -> str:
    if sys.stdin is None:
        raise InvalidRequest("stdin is closed; give PROMPT as an argument", field="prompt")
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"stdin is not UTF-8 text ({error})", field="prompt") from error
    except OSError as error:
        raise InvalidRequest(
            f"stdin cannot be read ({error.strerror}); give PROMPT as an argument", field="prompt"
        ) from error


def _open(folder: Path, threads: int | None) -> OnnxDraft:
    from edge_sdk.draft.onnx import OnnxDraft

    return OnnxDraft.open(folder, threads=threads)


async def _print(stream: Stream, trace: Trace | None) -> None:
    try:
        async with stream:
            async for piece in stream:
                write(piece.text)
                if trace is not None:
                    trace.piece(piece.text, len(piece.tokens))
    finally:
        write("\n")


def _report(stream: Stream, gamma: int | Literal["auto"]) -> None:
    if sys.stderr is None:
        return
    table = figures([stream.stats])
    console = Console(stderr=True)
    console.print(table)
    blocks_matter = gamma == "auto" and stream.stats.method not in _OF_THE_SEED
    repeats = " (repeats a text only with a number as --gamma)" if blocks_matter else ""
    console.print(
        f"finish: {stream.finish or 'broke off'}, seed: {stream.seed}{repeats}", highlight=False
    )


def _gamma(given: str) -> int | Literal["auto"]:
    if given == "auto":
        return "auto"
    try:
        return int(given)
    except ValueError as error:
        raise InvalidRequest(
            f"--gamma is {given[:40]!r}; give a number of tokens or auto", field="gamma"
        ) from error


def _options(given: list[str]) -> dict[str, str | int | float]:
    options: dict[str, str | int | float] = {}
    for item in given:
        name, separator, value = item.partition("=")
        if not separator or not name:
            raise InvalidRequest(f"option {item!r} is not NAME=VALUE", field="option")
        options[name] = _number(value)
    return options


def _number(value: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _offline(given: str) -> Literal["fail", "wait"]:
    if given == "fail":
        return "fail"
    if given == "wait":
        return "wait"
    raise InvalidRequest(f"--offline is {given!r}; give fail or wait", field="offline")
