"""Checks of what callers pass in, with sentences that name the argument and what to give."""

from __future__ import annotations

import math
import operator
from typing import SupportsIndex, cast

import numpy as np

from edge_sdk.errors import InvalidRequest

_SHOWN = 80  # characters of a value that a sentence shows


def shown(value: object) -> str:
    """A value as a sentence shows it: its repr, cut."""
    if isinstance(value, str | bytes):
        value = value[: _SHOWN + 1]
    try:
        text = repr(value)
    except (ValueError, TypeError, AttributeError, RecursionError):
        # A repr of the caller's own that fails, or an integer too long to be written.
        return f"a {kind(value)}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def kind(value: object) -> str:
    """Name of a value's type."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def integer(name: str, value: object) -> int:
    """An integer, also one of numpy, as int.

    Raises:
        InvalidRequest: it is none, or a truth value.
    """
    if isinstance(value, bool | np.bool_):
        raise InvalidRequest(f"{name} is {value!r}; it must be an integer", field=name)
    try:
        return operator.index(cast("SupportsIndex", value))
    except TypeError as error:
        raise InvalidRequest(
            f"{name} is {shown(value)} ({kind(value)}); it must be an integer", field=name
        ) from error


def number(name: str, value: object) -> int | float:
    """A finite number, also one of numpy, as int or float.

    Raises:
        InvalidRequest: it is none, or a truth value.
    """
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        raise InvalidRequest(
            f"{name} is {shown(value)} ({kind(value)}); it must be a number (int or float)",
            field=name,
        )
    plain = int(value) if isinstance(value, int | np.integer) else float(value)
    if not is_finite(plain):
        raise InvalidRequest(f"{name} is {shown(value)}; it must be a finite number", field=name)
    return plain


def is_finite(value: int | float) -> bool:
    """Whether a float64 can hold it."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def require_text(name: str, value: str, field: str) -> None:
    """Refuse text that UTF-8 cannot write.

    Raises:
        InvalidRequest: half a surrogate pair is in it.
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{name} has half a surrogate pair (U+{ord(value[error.start]):04X}) at character "
            f"{error.start}; give text that UTF-8 can write",
            field=field,
        ) from error
