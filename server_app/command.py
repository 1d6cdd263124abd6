"""`cosd serve`: run the server."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from edge_sdk.errors import InvalidRequest
from edge_sdk.home import cosd_home
from server_app.before_loading import check_target, is_toy
from server_app.field_words import wrong
from server_app.listening import address_of, bound, places_of
from server_app.observability import logs
from server_app.options import ARGUMENT, takes_settings
from server_app.process import Process
from server_app.routes.drafts import DraftFolders
from server_app.settings import Settings
from server_app.shared_prompts import read_shared_prompts

if TYPE_CHECKING:
    from fastapi import FastAPI

    from server_app.target.model import TargetModel

log = logging.getLogger("server_app")

_Kind = TypeVar("_Kind", bound=BaseSettings)


@takes_settings(Settings)
def serve(**given: Any) -> None:
    """Serve a target model that verifies drafts.

    Every option is also an environment variable, e.g. COSD_PORT. Keys come only from there:
    COSD_API_KEYS=key1,key2 are accepted from devices, COSD_METRICS_KEY opens /metrics. Without
    keys anybody who reaches the port is served.

    /health and /ready answer while the model loads. SIGTERM drains, Ctrl-C does not wait for
    sessions, a second signal ends at once. docs/operate.md tells more.

    Example: `COSD_API_KEYS=secret cosd serve gemma3-270m --port 8077`
    """
    settings = settings_from({name: value for name, value in given.items() if value is not None})
    logs.configure(settings.log_level, settings.log_format)
    source = source_of(settings.target)
    # What a folder or a file lacks is told now, not after torch was imported or a model loaded.
    check_target(
        source,
        device=settings.device,
        dtype=settings.dtype,
        pack_weights=settings.pack_weights,
        cache_tokens=settings.cache_tokens,
    )
    read_shared_prompts(settings.shared_prompts)
    DraftFolders(settings.drafts)
    if settings.telemetry:
        from server_app.observability.tracing import export_spans

        export_spans()
    with bound(settings.host, settings.port) as listener:
        _run(settings, source, listener)


def settings_from(given: dict[str, Any]) -> Settings:
    """Settings of the command line over those of the environment.

    Raises:
        InvalidRequest: one of them cannot be.
    """
    return checked(Settings, given)


def checked(kind: type[_Kind], given: dict[str, Any]) -> _Kind:
    """As `settings_from`, of any kind of settings."""
    try:
        return kind(**given)
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise InvalidRequest(first["msg"].removeprefix("Value error, ")) from error
        name = str(first["loc"][0])
        spelled = _spelled(kind, name, name in given)
        raise InvalidRequest(wrong(spelled, first, kind.model_fields[name]), field=name) from error


def _spelled(kind: type[BaseSettings], name: str, option: bool) -> str:
    """A setting as whoever gave it wrote it."""
    if not option:
        return f"{kind.model_config['env_prefix']}{name.upper()}"
    return name if name == ARGUMENT else f"--{name.replace('_', '-')}"


def load_app(
    settings: Settings,
    source: str | Path,
    progress: Callable[[str], None],
    *,
    served: Callable[[TargetModel], TargetModel] = lambda model: model,
) -> FastAPI:
    """Import torch, load the model and make the app; on a thread of its own.

    Args:
        served: what is served of the model that was loaded.
    """
    progress("importing torch")
    import torch

    from server_app.app import create_app
    from server_app.target.loading import load_target

    if settings.threads:
        torch.set_num_threads(settings.threads)
    loaded = load_target(
        source,
        device=settings.device,
        dtype=settings.dtype,
        chat_template=None if settings.chat_template == "model" else settings.chat_template,
        cache_tokens=settings.cache_tokens or None,
        pack_weights=settings.pack_weights,
        progress=progress,
    )
    model = served(loaded)
    _announce(settings, model)
    app = create_app(model, settings)
    if settings.warm_up:
        progress("warming up")
        model.warm_up()
    return app


def source_of(target: str) -> str | Path:
    """A toy, a folder, or the folder of a prepared model.

    Raises:
        InvalidRequest: there is none.
    """
    if not target.strip():
        raise InvalidRequest(
            "target is empty; give a Hugging Face folder or the name of a prepared model",
            field="target",
        )
    if is_toy(target):
        return target
    prepared = cosd_home() / "models" / target
    try:
        if Path(target).expanduser().exists():
            return target
        if prepared.is_dir():
            return prepared
    except (OSError, RuntimeError) as error:
        # A name that no file can have, or the home of a user who does not exist.
        raise InvalidRequest(
            f"target {target[:80]!r} is no path ({error})", field="target"
        ) from error
    raise InvalidRequest(
        f"target {target[:80]!r} is neither a folder nor prepared; give a Hugging Face folder, or "
        f"run `cosd prepare NAME` first",
        field="target",
    )


def _announce(settings: Settings, model: TargetModel) -> None:
    vocabulary = model.vocabulary
    log.info(
        "target %s: %d tokens (%s...), context %d, cache of %d tokens, %s on %s, chat template: %s",
        model.name,
        len(vocabulary),
        vocabulary.fingerprint[:12],
        model.context,
        model.cache_limit,
        str(model.dtype).removeprefix("torch."),
        model.device,
        "yes" if model.has_chat_template else "no",
    )
    if model.cache_limit < model.context:
        log.warning(
            "the cache of %d tokens is smaller than the context of %d: a text that does not fit "
            "is refused; --cache-tokens sets its size",
            model.cache_limit,
            model.context,
        )
    if settings.api_keys:
        log.info("%d API keys are accepted", len(settings.api_keys))
    else:
        log.warning(
            "no API keys are set (COSD_API_KEYS): everybody who reaches this server is served"
        )


def _run(settings: Settings, source: str | Path, listener: socket.socket) -> None:
    places = places_of(listener)
    process = Process(
        lambda progress: load_app(settings, source, progress),
        on_ready=lambda: log.info("listening on %s", places),
        keep_alive=settings.keep_alive,
        drain_seconds=settings.drain_seconds,
    )
    log.info("loading %s; %s/ready tells how far it is", settings.target, address_of(listener))
    process.run(sockets=[listener])
    if process.boot.failure is not None:
        raise process.boot.failure
    log.info("ended")
    if process.interrupted:
        raise KeyboardInterrupt
