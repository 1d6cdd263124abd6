"""`cosd prepare`: a model by name becomes a folder in the model home, once."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from export.console import TerminalProgress
from export.packaged import PACKAGED_MODELS
from export.pipeline import prepare_draft, prepare_target


def prepare(
    name: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(PACKAGED_MODELS)}, a GGUF file, a hub id such as "
            "`owner/name`, or a Hugging Face folder.",
            show_default=False,
        ),
    ],
    draft: Annotated[
        bool,
        typer.Option("--draft", help="Export it as a draft for a device, in 4-bit weights."),
    ] = False,
) -> None:
    """Make a model ready to serve, or with --draft to draft with, and print its folder.

    It is downloaded and converted once and kept in COSD_HOME (default: `cosd` in your cache
    folder); the next time only its folder is printed. `cosd serve NAME` finds a prepared
    target by its name.

    Example: `cosd generate "The sea is" --draft $(cosd prepare --draft smollm2-135m)`
    """
    with TerminalProgress(Console(stderr=True)) as progress:
        make = prepare_draft if draft else prepare_target
        folder = make(name, progress=progress)
    typer.echo(folder)
