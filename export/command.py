"""`cosd export`: a checkpoint becomes a draft folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from export.backend_registry import BACKEND_CHOICES, DEFAULT_BACKEND
from export.console import TerminalProgress
from export.packaged import PACKAGED_MODELS
from export.pipeline import WEIGHT_BITS, export_draft

_KEY = "COSD_API_KEY"


def export(
    source: Annotated[
        str,
        typer.Argument(
            help="What to export: a Hugging Face folder, a folder that optimum exported, a GGUF "
            "file, a hub id such as "
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
    target: Annotated[
        str | None,
        typer.Option(
            metavar="URL|FOLDER",
            help="The target to draft for, a server or a model: says what the vocabularies "
            "share, before the work starts.",
        ),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Compute only the tokens that --target has too; for that target alone. Gains "
            "where these are much fewer.",
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Then check the draft (`cosd check`) and write a page of it."
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Run Python code that comes with the model."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a draft folder that is at OUT already.")
    ] = False,
) -> None:
    """Export a language model to a draft folder that a device can run.

    The folder holds an ONNX graph with its weights in a few bits, the tokenizer and a
    manifest. It appears when it is whole. What was finished before an interruption (Ctrl-C,
    a kill, a full disk) is kept in OUT.work, and the same command goes on from there.

    The key of a server comes from COSD_API_KEY.

    Example: `cosd export smollm2-135m my-draft`
    """
    if html is not None:
        # Drawing needs a library that the export does not.
        from export.check.page import check_place

        check_place(html)
    console = Console(stderr=True)
    key = os.environ.get(_KEY) or None
    with TerminalProgress(console) as progress:
        manifest = export_draft(
            source,
            out,
            bits=bits,
            context=context,
            backend=backend,
            target=target,
            prune=prune,
            api_key=key,
            trust_remote_code=trust_remote_code,
            force=force,
            progress=progress,
        )
    size = sum(entry.bytes for entry in manifest.files.values())
    console.print(
        f"{out}: {manifest.architecture}, {manifest.bits}-bit weights, {size / 1e6:,.0f} MB, "
        f"{manifest.logits_width:,} tokens, context {manifest.context:,}, "
        f"graph by {manifest.backend}"
        + ("" if manifest.pruned is None else f", for the target {manifest.pruned.target} alone"),
        markup=False,
        highlight=False,
    )
    if html is not None:
        _page(out, source, target, html, key, trust_remote_code)


def _page(
    out: Path,
    source: str,
    target: str | None,
    html: Path,
    key: str | None,
    trust_remote_code: bool,
) -> None:
    # Only now: the check loads what the export need not.
    from export.check.page import write_page
    from export.check.run import CheckOptions, check_draft

    options = CheckOptions(
        source=source, target=target, api_key=key, trust_remote_code=trust_remote_code
    )
    with TerminalProgress(Console(stderr=True)) as progress:
        write_page(check_draft(out, options, progress=progress), html)
