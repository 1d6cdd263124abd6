"""`cosd export`: a checkpoint becomes a draft folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from export.backend_registry import BACKEND_CHOICES, DEFAULT_BACKEND
from export.console import TerminalProgress
from export.packaged import PACKAGED_MODELS
from export.pipeline import WEIGHT_BITS, export_draft


def export(
    source: Annotated[
        str,
        typer.Argument(
            help="What to export: a Hugging Face folder, a GGUF file, a hub id such as "
            f"`owner/name` or `owner/name@revision`, or one of {', '.join(PACKAGED_MODELS)}.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Argument(help="Folder to make. It appears when it is complete.")],
    bits: Annotated[
        int,
        typer.Option(
            help=f"Bits a weight: {', '.join(map(str, WEIGHT_BITS))}. "
            "Fewer bits are faster and smaller, and drafts are accepted a little less often."
        ),
    ] = 4,
    context: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most tokens a text can hold. Default: what the model was built for."
        ),
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            help=f"What makes the ONNX graph: {', '.join(BACKEND_CHOICES)}. "
            "`auto` takes the fastest that can export the model exactly."
        ),
    ] = DEFAULT_BACKEND,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a draft folder that is at OUT already.")
    ] = False,
) -> None:
    """Export a language model to a draft folder that a device can run.

    The folder holds an ONNX graph with its weights in a few bits, the tokenizer and a
    manifest. Nothing is left behind when the export fails or you stop it with Ctrl-C.

    Example: `cosd export smollm2-135m my-draft`
    """
    console = Console(stderr=True)
    with TerminalProgress(console) as progress:
        manifest = export_draft(
            source,
            out,
            bits=bits,
            context=context,
            backend=backend,
            force=force,
            progress=progress,
        )
    size = sum(entry.bytes for entry in manifest.files.values())
    console.print(
        f"{out}: {manifest.architecture}, {manifest.bits}-bit weights, {size / 1e6:,.0f} MB, "
        f"{manifest.logits_width:,} tokens, context {manifest.context:,}, "
        f"graph by {manifest.backend}",
        markup=False,
        highlight=False,
    )
