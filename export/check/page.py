"""A report as one HTML file that needs nothing beside it."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from edge_sdk.errors import PreparationError
from export.check.plots import plots
from export.check.report import Report

_TEMPLATE = "report.html.j2"


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
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise PreparationError(
            f"{path} cannot be written ({error.strerror}); choose another place for the page"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
