"""What is wrong with a field of a pydantic model, in this project's words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from edge_sdk.arguments import kind, shown

_KINDS: Final = MappingProxyType(
    {
        "bool": "true or false",
        "dict": "an object",
        "float": "a number",
        "int": "an integer",
        "list": "a list",
        "string": "a string",
    }
)
_OF_A_KIND: Final = re.compile(rf"({'|'.join(_KINDS)})_(type|parsing|from_float|parsing_size)")
_OF_A_RANGE: Final = frozenset(
    {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}
)
_OF_A_LENGTH: Final = frozenset({"too_long", "too_short"})


def wrong(name: str, error: ErrorDetails, field: FieldInfo | None) -> str:
    """A sentence of what was given and what it must be.

    Args:
        name: what whoever gave the value calls the field.
        error: of pydantic, with its input.
        field: the field itself; None where it lies deeper.
    """
    context = error.get("ctx", {})
    given, about = error["input"], error["type"]
    bounds = () if field is None else field.metadata
    if about in _OF_A_LENGTH:
        count = context["actual_length"]
        return f"{name} has {len(given) if count is None else count} items; {_length(bounds)}"
    value = shown(given)
    if (found := _OF_A_KIND.fullmatch(about)) is not None:
        # A variable of the environment is a string before it is read.
        value += "" if found[2] == "parsing" else f" ({kind(given)})"
        wanted = _KINDS[found[1]] + _range(bounds)
    elif about in _OF_A_RANGE:
        wanted = _range(bounds).strip()
    elif about == "finite_number":
        wanted = "a finite number" + _range(bounds)
    elif about == "literal_error":
        wanted = context["expected"].replace("'", "")
    else:
        cause = context.get("error")
        return f"{name}: {cause if isinstance(cause, Exception) else error['msg']}"
    return f"{name} is {value}; it must be {wanted}"


def _range(bounds: Sequence[Any]) -> str:
    low, low_open = _bound(bounds, "ge", "gt")
    high, high_open = _bound(bounds, "le", "lt")
    if low is None and high is None:
        return ""
    if high is None:
        return f" {'above' if low_open else 'at least'} {low}"
    if low is None:
        return f" {'below' if high_open else 'at most'} {high}"
    return f" within {'(' if low_open else '['}{low}, {high}{')' if high_open else ']'}"


def _bound(bounds: Sequence[Any], closed: str, opened: str) -> tuple[Any, bool]:
    """A bound, and whether it is itself outside."""
    for each in bounds:
        for name in (closed, opened):
            if (value := getattr(each, name, None)) is not None:
                return value, name == opened
    return None, False


def _length(bounds: Sequence[Any]) -> str:
    least, _ = _bound(bounds, "min_length", "min_length")
    most, _ = _bound(bounds, "max_length", "max_length")
    if most is None:
        return f"give at least {least}"
    return f"give at most {most}" if least is None else f"give {least} to {most}"
