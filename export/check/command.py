"""`cosd check`: is a draft folder equal to its source, how fast is it, does it help."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from export.check.recommendation import RTTS_MS
from export.check.run import DTYPES, CheckOptions, check_draft
from export.check.terminal import show
from export.check.texts import PROMPTS, TEXT, read_prompts, read_text
from export.console import TerminalProgress

_KEY = "COSD_API_KEY"


def check(
    folder: Annotated[Path, typer.Argument(help="A draft folder that `cosd export` made.")],
    source: Annotated[
        str | None,
        typer.Option(
            help="The model that was exported, as `cosd export` takes it.",
            show_default="what the manifest names",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="URL|FOLDER",
            help="A server, or a model folder, hub id, GGUF file or packaged name to load here.",
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Prompts, one a line (\\n is a line end), or JSON lines in a .jsonl file.",
            show_default="some of ours",
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Text over which the draft is compared with its source.",
            show_default="one of ours",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with plots as well.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    temperature: Annotated[float, typer.Option(help="Of the laws that are compared.")] = 0.7,
    tokens: Annotated[int, typer.Option(help="Most tokens of a text a prompt.")] = 32,
    text_tokens: Annotated[int, typer.Option(help="Most tokens of --text.")] = 256,
    gamma: Annotated[int, typer.Option(help="Drafts a round, where a server writes.")] = 3,
    threads: Annotated[
        list[int] | None,
        typer.Option(help="Threads to time; may be repeated.", show_default="1, 2, 4, ..."),
    ] = None,
    draft_ms: Annotated[
        float | None,
        typer.Option(help="Milliseconds a drafted token on your device.", show_default="as here"),
    ] = None,
    target_ms: Annotated[
        float | None,
        typer.Option(help="Milliseconds a pass of the target.", show_default="as measured"),
    ] = None,
    rtt_ms: Annotated[
        list[float] | None,
        typer.Option(
            help="Round trip to choose gamma for; may be repeated.",
            show_default=", ".join(f"{rtt:g}" for rtt in RTTS_MS),
        ),
    ] = None,
    target_dtype: Annotated[
        str, typer.Option(help=f"Of a target that is loaded here: {', '.join(DTYPES)}.")
    ] = "auto",
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Run Python code that comes with the models."),
    ] = False,
) -> None:
    """Measure a draft folder: equal to its source, fast, useful for a target?

    Compares its laws with the source's, times it in fresh processes, and with --target says
    how often drafts will be accepted and which gamma and method to take. The key of a server
    comes from COSD_API_KEY.

    Example: `cosd check my-draft --target gemma3-270m --html report.html`
    """
    # Before torch starts its threads, which would spin beside those of the draft.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    options = CheckOptions(
        source=source,
        target=target,
        prompts=PROMPTS if prompts is None else read_prompts(prompts),
        text=TEXT if text is None else read_text(text, option="--text"),
        text_tokens=text_tokens,
        temperature=temperature,
        tokens=tokens,
        gamma=gamma,
        threads=tuple(threads or ()),
        draft_ms=draft_ms,
        target_ms=target_ms,
        rtts_ms=tuple(rtt_ms or RTTS_MS),
        target_dtype=target_dtype,
        trust_remote_code=trust_remote_code,
        api_key=os.environ.get(_KEY) or None,
    )
    if html is not None:
        # Drawing needs a library that the rest does not.
        from export.check.page import check_place, write_page

        check_place(html)
    with TerminalProgress(Console(stderr=True)) as progress:
        report = check_draft(folder, options, progress=progress)
    if html is not None:
        write_page(report, html)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), ensure_ascii=False))
    else:
        show(report, Console())
