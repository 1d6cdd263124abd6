"""The methods by name. Adding one is its two files and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from edge_sdk.decoding.autoregressive import Autoregressive
from edge_sdk.decoding.baselines import Full, GreedyResample, TargetResample
from edge_sdk.decoding.candidates import Candidates
from edge_sdk.decoding.consultant import Consultant
from edge_sdk.decoding.coupled import Coupled
from edge_sdk.decoding.greedy import Greedy
from edge_sdk.decoding.hybrid import Hybrid
from edge_sdk.decoding.mentored import Mentored
from edge_sdk.decoding.method import Method
from edge_sdk.decoding.uncertain import Uncertain
from edge_sdk.decoding.upload import Upload
from edge_sdk.errors import InvalidRequest, UnknownMethod

METHODS: dict[str, type[Method]] = {
    cls.name: cls
    for cls in (
        Hybrid,
        Candidates,
        Coupled,
        Greedy,
        Consultant,
        Mentored,
        Upload,
        Full,
        GreedyResample,
        TargetResample,
        Uncertain,
        Autoregressive,
    )
}


def method_named(name: str, options: Mapping[str, Any] | None = None) -> Method:
    """The method of a name with its options.

    Raises:
        UnknownMethod: no such method; the message lists them.
        InvalidRequest: an option is unknown or out of range.
    """
    if name not in METHODS:
        raise UnknownMethod(
            f"method {name!r} does not exist; there are {', '.join(METHODS)}", field="method"
        )
    cls = METHODS[name]
    known = {field.name for field in fields(cls)}
    for option in options or {}:
        if option not in known:
            raise InvalidRequest(
                f"method {name!r} has no option {option!r}; "
                f"it has {', '.join(sorted(known)) or 'none'}",
                field=f"options.{option}",
            )
    return cls(**(options or {}))
