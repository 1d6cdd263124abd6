"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from edge_sdk.decoding.registry import METHODS
from edge_sdk.errors import InvalidRequest
from edge_sdk.session import AUTO

__all__ = ["DEFAULT_SERVER", "DraftOption", "ServerOption", "draft_folder"]

DEFAULT_SERVER: Final = "http://127.0.0.1:8077"

ServerOption = Annotated[str, typer.Option(help="Address of the server.", envvar="COSD_SERVER")]

DraftOption = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Folder of an exported draft model (`cosd export`); not needed for autoregressive.",
        envvar="COSD_DRAFT",
    ),
]


def draft_folder(given: str | None, *, method: str) -> Path | None:
    """The folder of `--draft`.

    Args:
        method: an existing one, or "auto".

    Raises:
        InvalidRequest: it is empty, which would be the current folder as a path, or the method
            needs one.
    """
    if given == "":
        raise InvalidRequest(
            "--draft is empty; give the folder that `cosd export` made", field="draft"
        )
    if given is not None:
        return Path(given)
    if method == AUTO or METHODS[method].drafts:
        raise InvalidRequest(
            "--draft is missing; give the folder that `cosd export` made, or use "
            "--method autoregressive",
            field="draft",
        )
    return None
