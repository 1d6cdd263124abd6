"""The methods by name. Adding one is its two files and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from edge_sdk.arguments import kind, shown
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
    given: object = name
    if not isinstance(given, str) or given not in METHODS:
        raise UnknownMethod(
            f"method {shown(name)} does not exist; there are {', '.join(METHODS)}", field="method"
        )
    cls = METHODS[name]
    known = {field.name for field in fields(cls)}
    if options is not None and not isinstance(options, Mapping):
        raise InvalidRequest(
            f"options is {shown(options)} ({kind(options)}); give a dict of names and values",
            field="options",
        )
    for option in options or {}:
        if option not in known:
            raise InvalidRequest(
                f"method {name!r} has no option {shown(option)}; "
                f"it has {', '.join(sorted(known)) or 'none'}",
                field=f"options.{str(option)[:80]}",
            )
    return cls(**(options or {}))
