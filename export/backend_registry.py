"""Export backends by name, imported when one is used."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

from edge_sdk.errors import InvalidRequest, PreparationError, UnsupportedModel
from export.backends.base import ExportBackend
from export.progress import Progress

AUTO = "auto"
DEFAULT_BACKEND = AUTO
BACKENDS: dict[str, tuple[str, str]] = {
    "fused": ("export.backends.fused_backend", "FusedBackend"),
    "optimum": ("export.backends.optimum_backend", "OptimumBackend"),
}
BACKEND_CHOICES = (AUTO, *BACKENDS)
_FASTEST_FIRST = ("fused", "optimum")


def check_backend(name: str) -> None:
    """Raise `InvalidRequest` for a name that is no backend."""
    if name != AUTO and name not in BACKENDS:
        raise InvalidRequest(
            f"{name!r} is no export backend; use one of {', '.join(BACKEND_CHOICES)}",
            field="backend",
        )


def load_backend(name: str) -> ExportBackend:
    """The backend of a name, which is not `auto`.

    Raises:
        InvalidRequest: there is none.
        PreparationError: packages that it needs are not installed.
    """
    check_backend(name)
    module, attribute = BACKENDS[name]
    try:
        backend = getattr(import_module(module), attribute)()
    except ModuleNotFoundError as error:
        raise PreparationError(
            f"the export backend {name} needs the package {error.name}; "
            "run `pip install 'edge-cosd[export]'`"
        ) from error
    assert isinstance(backend, ExportBackend)
    return backend


def make_graph(
    name: str,
    source: Path,
    work: Path,
    *,
    context: int,
    progress: Progress,
    trust_remote_code: bool = False,
) -> tuple[Path, str]:
    """The fp32 graph of a model, by one backend or, with `auto`, by the fastest that can.

    Args:
        name: a backend, or `auto`.
        source, work, context, progress, trust_remote_code: see `ExportBackend.export`.

    Returns:
        the graph, and the name of the backend that made it.

    Raises:
        CosdError: as `ExportBackend.export`; with `auto`, as its last backend.
    """
    options: dict[str, Any] = {"context": context, "progress": progress}
    if trust_remote_code:
        options["trust_remote_code"] = True
    for candidate in _FASTEST_FIRST[:-1] if name == AUTO else ():
        folder = work / candidate
        folder.mkdir()
        try:
            graph = load_backend(candidate).export(source, folder, **options)
        except UnsupportedModel as error:
            progress.note(f"The backend {candidate} is passed over: {error.message}")
            shutil.rmtree(folder)
        else:
            progress.note(f"The graph was made by the backend {candidate}.")
            return graph, candidate
    chosen = _FASTEST_FIRST[-1] if name == AUTO else name
    graph = load_backend(chosen).export(source, work, **options)
    return graph, chosen
