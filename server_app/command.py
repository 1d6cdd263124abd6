"""`cosd serve`: run the server."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edge_sdk.errors import InvalidRequest, ServerUnavailable
from edge_sdk.home import cosd_home

if TYPE_CHECKING:
    from server_app.settings import Settings
    from server_app.target.model import TargetModel

log = logging.getLogger("server_app")

_SHUTDOWN_SECONDS = 10


def serve(
    target: Annotated[
        str | None,
        typer.Argument(
            help="Hugging Face folder, a name prepared with `cosd prepare`, or toy:SEED for a "
            "small random model without weights.",
            show_default="gemma3-270m",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; 0 takes a free one.", show_default="8077")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu or cuda.", show_default="auto")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="auto, float32, bfloat16 or float16. float32 makes texts independent of how "
            "many tokens a pass verifies; the others are faster.",
            show_default="auto",
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads of the model; 0: all.", show_default="0")
    ] = None,
    chat_template: Annotated[
        str | None,
        typer.Option(
            help="plain: render chats as text for a model without a template.",
            show_default="model",
        ),
    ] = None,
    max_sessions: Annotated[
        int | None, typer.Option(help="Most sessions held.", show_default="256")
    ] = None,
    session_ttl: Annotated[
        float | None, typer.Option(help="Seconds an idle session is kept.", show_default="1800")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.", show_default="info")
    ] = None,
) -> None:
    """Serve a target model that verifies drafts.

    Every option is also an environment variable, e.g. COSD_PORT. Keys come only from the
    environment: COSD_API_KEYS=key1,key2. Without keys anybody who reaches the port is served.

    Example: `COSD_API_KEYS=secret cosd serve gemma3-270m --port 8077`
    """
    given = {
        "target": target,
        "host": host,
        "port": port,
        "device": device,
        "dtype": dtype,
        "threads": threads,
        "chat_template": chat_template,
        "max_sessions": max_sessions,
        "session_ttl": session_ttl,
        "log_level": log_level,
    }
    settings = _settings({name: value for name, value in given.items() if value is not None})
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s"
    )
    # It reports on itself at exit.
    logging.getLogger("torch").setLevel(logging.WARNING)
    with _bound(settings.host, settings.port) as listener:
        model = _load(settings)
        _announce(settings, model)
        _run(settings, model, listener)


def _settings(given: dict[str, Any]) -> Settings:
    from pydantic import ValidationError

    from server_app.settings import Settings

    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest(f"setting {name}: {first['msg']}", field=name) from error


def _bound(host: str, port: int) -> socket.socket:
    """A socket bound before the model is loaded, so that a taken port is known at once."""
    try:
        if not host:
            raise OSError("no address")
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise InvalidRequest(
            f"--host {host[:80]!r} is not an address of this machine ({error}); take 127.0.0.1, or "
            f"0.0.0.0 for every address",
            field="host",
        ) from error
    try:
        # NOTE: asyncio sends small replies at once only on sockets made with IPPROTO_TCP.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise ServerUnavailable(
            f"cannot listen on {host} port {port} ({error.strerror}); choose another --port, or 0 "
            f"for a free one"
        ) from error
    return listener


def _load(settings: Settings) -> TargetModel:
    import torch

    from server_app.target.loading import load_target

    if settings.threads:
        torch.set_num_threads(settings.threads)
    return load_target(
        _source(settings.target),
        device=settings.device,
        dtype=settings.dtype,
        chat_template=None if settings.chat_template == "model" else settings.chat_template,
        progress=log.info,
    )


def _source(target: str) -> str | Path:
    if target.partition(":")[0] == "toy":
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
        "target %s: %d tokens (%s...), context %d, %s on %s, chat template: %s",
        model.name,
        len(vocabulary),
        vocabulary.fingerprint[:12],
        model.context,
        str(model.dtype).removeprefix("torch."),
        model.device,
        "yes" if model.has_chat_template else "no",
    )
    if settings.api_keys:
        log.info("%d API keys are accepted", len(settings.api_keys))
    else:
        log.warning(
            "no API keys are set (COSD_API_KEYS): everybody who reaches %s is served", settings.host
        )


def _run(settings: Settings, model: TargetModel, listener: socket.socket) -> None:
    import uvicorn

    from server_app.app import create_app

    log.info("warming up")
    model.warm_up()
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    log.info("listening on http://%s:%d", shown, port)
    app = create_app(model, settings)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            # Streams end now, so that waiting for open connections is short.
            app.state.host.draining = True
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_keep_alive=settings.keep_alive,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    Server(config).run(sockets=[listener])
