"""Command-line options made from the settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Protocol, TypeVar, cast

import typer
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

F = TypeVar("F", bound=Callable[..., Any])

ARGUMENT = "target"


class _Described(Protocol):
    """A function that says itself what it takes; `inspect.signature` asks it first."""

    __signature__: inspect.Signature


def takes_settings(*kinds: type[BaseSettings]) -> Callable[[F], F]:
    """Give a command an option for every setting with a panel; its keyword arguments are the
    settings, None where an option was not given. Secrets have no panel: they come from the
    environment only, since a command line can be read by others."""
    parameters = [
        _parameter(name, field)
        for kind in kinds
        for name, field in kind.model_fields.items()
        if panel_of(field) is not None
    ]
    annotations = {parameter.name: parameter.annotation for parameter in parameters}

    def taking(command: F) -> F:
        command.__annotations__ = {**annotations, "return": None}
        cast("_Described", command).__signature__ = inspect.Signature(parameters)
        return command

    return taking


def panel_of(field: FieldInfo) -> str | None:
    """The panel of `cosd serve --help` that shows a setting."""
    extra = field.json_schema_extra
    panel = extra.get("panel") if isinstance(extra, dict) else None
    return panel if isinstance(panel, str) else None


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    default = field.default
    kind: Any = type(default) if isinstance(default, bool | int | float) else str
    # The default itself is not given to typer, so that the environment is asked first.
    text = f"{field.description} (default: {_shown(default)})"
    if name == ARGUMENT:
        given: Any = typer.Argument(help=text, show_default=False)
    else:
        given = typer.Option(help=text, show_default=False, rich_help_panel=panel_of(field))
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, given],
    )


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    if default is None or default == ():
        return "none"
    return f"{default:g}" if isinstance(default, float) else str(default)
