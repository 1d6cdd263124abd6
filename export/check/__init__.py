"""A draft folder measured: is it equal to its source, how fast is it, does it help a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from export.check.report import Report
    from export.check.run import CheckOptions, check_draft

__all__ = ["CheckOptions", "Report", "check_draft"]


def __getattr__(name: str) -> Any:
    # Imported when asked for: the program that measures speed loads nothing heavier than the SDK.
    if name in __all__:
        from export.check import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
