"""Any Hugging Face or GGUF checkpoint -> a small folder that a device can draft with.

    from export import export_draft

    manifest = export_draft("smollm2-135m", "my-draft", bits=4)

`docs/export.md` has worked examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from export.pipeline import export_draft, prepare_draft, prepare_target

__all__ = ["export_draft", "prepare_draft", "prepare_target"]


def __getattr__(name: str) -> Any:
    # Imported when asked for: `cosd --help` reads this package without its dependencies.
    if name in __all__:
        from export import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
