"""Text to stdout, whose failures end in one line."""

from __future__ import annotations

import os
import sys

from edge_sdk.errors import CosdError, InvalidRequest

__all__ = ["check_stdout", "write"]


def check_stdout() -> None:
    """Raise `InvalidRequest` where there is no stdout to write to."""
    if sys.stdout is None:
        raise InvalidRequest("stdout is closed, so the text has nowhere to go; open or redirect it")


def write(text: str) -> None:
    """Write `text` at once.

    Raises:
        BrokenPipeError: the reader is gone, as `head` is when it has enough; typer ends the
            program for it without a word.
        CosdError: the disk is full, or the encoding has no such letter.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What is still in the buffer would fail again, in a traceback, when Python ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            raise
        raise CosdError(f"stdout cannot be written: {error.strerror}") from error
    except UnicodeEncodeError as error:
        raise CosdError(
            f"stdout is in {error.encoding}, which cannot hold the text; set PYTHONIOENCODING=utf-8"
        ) from error
