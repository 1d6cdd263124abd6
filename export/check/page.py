"""A report as one HTML file that needs nothing beside it."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from edge_sdk.errors import PreparationError
from export.check.plots import plots
from export.check.report import Report

_TEMPLATE = "report.html.j2"


def check_place(path: Path) -> None:
    """Before anything is measured: can a page be written there? Leaves nothing behind.

    Raises:
        PreparationError: it cannot.
    """
    if path.is_dir():
        raise PreparationError(f"{path} is a folder; name a file for the page")
    partial = _partial(path)
    try:
        with partial.open("w", encoding="utf-8"):
            pass
    except OSError as error:
        raise _unwritable(path, error) from error
    partial.unlink(missing_ok=True)


def render(report: Report) -> str:
    """The page. Everything that came from outside is escaped."""
    environment = Environment(
        loader=PackageLoader("export.check", "."), autoescape=True, undefined=StrictUndefined
    )
    drawn = [(plot.title, Markup(plot.svg)) for plot in plots(report)]
    return environment.get_template(_TEMPLATE).render(report=report, plots=drawn)


def write_page(report: Report, path: Path) -> None:
    """Write the page to a file.

    Raises:
        PreparationError: it cannot be written.
    """
    text = render(report)
    partial = _partial(path)
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        partial.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def _unwritable(path: Path, error: OSError) -> PreparationError:
    return PreparationError(
        f"{path} cannot be written ({error.strerror}); choose another place for the page"
    )
