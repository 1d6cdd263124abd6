"""Export backends by name, imported when one is used."""

from __future__ import annotations

from importlib import import_module

from edge_sdk.errors import InvalidRequest, PreparationError
from export.backends.base import ExportBackend

DEFAULT_BACKEND = "optimum"
BACKENDS: dict[str, tuple[str, str]] = {
    "optimum": ("export.backends.optimum_backend", "OptimumBackend"),
}


def check_backend(name: str) -> None:
    """Raise `InvalidRequest` for a name that is no backend."""
    if name not in BACKENDS:
        raise InvalidRequest(
            f"{name!r} is no export backend; use one of {', '.join(BACKENDS)}", field="backend"
        )


def load_backend(name: str) -> ExportBackend:
    """The backend of a name.

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
