"""Log lines for people or for collectors, without anything a client wrote.

Own lines carry facts (request id, route, seconds, ...) in `extra={"facts": {...}}`; prompts,
token ids and keys are never among them. Exceptions keep their type and frames, and their
message only where it is about the machine: others may quote what they were given.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

from server_app.observability.facts import current_request_id

OWN: Final = ("server_app", "edge_sdk", "bench")
_TOLD: Final = (
    "Exception in ASGI application\n",
    "ASGI callable returned without completing handshake.",
)
# torch reports on itself at exit, uvicorn on what the command says in its own words, httpx on
# whole addresses.
_QUIET: Final = {
    "torch": logging.WARNING,
    "uvicorn": logging.WARNING,
    "httpx": logging.WARNING,
}
_ABOUT_THE_MACHINE: Final = (RuntimeError, OSError, MemoryError)
_LEFT_OUT: Final = "(message left out: it may quote a request)"


def configure(level: str, style: Literal["text", "json"]) -> None:
    """Log to stderr. Other packages' lines below `info` stay out: they could hold anything."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    handler.addFilter(_not_told_twice)
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(number, logging.INFO), handlers=[handler])
    for name in OWN:
        logging.getLogger(name).setLevel(number)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(number, least))


class TextFormatter(logging.Formatter):
    """`2026-11-30 06:00:00.123 INFO message key=value ...`, then frames of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={value}" for name, value in facts_of(record).items())
        line = f"{_time(record, ' ')} {record.levelname} {_message(record)}{facts}"
        error = error_of(record)
        if error is None:
            return line
        return "\n".join([line, *error["frames"], f"{error['type']}: {error['message']}"])


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _time(record, "T"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **facts_of(record),
        }
        error = error_of(record)
        if error is not None:
            fields["error"] = error
        return json.dumps(fields, ensure_ascii=False, default=str)


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """Facts of a record; empty ones are left out."""
    given = getattr(record, "facts", {})
    facts = {name: value for name, value in given.items() if value not in ("", None)}
    request_id = current_request_id()
    if request_id and "request_id" not in facts:
        facts["request_id"] = request_id
    return facts


def error_of(record: logging.LogRecord) -> dict[str, Any] | None:
    """Type, frames and, where it is about the machine, message of a record's exception."""
    if not record.exc_info or record.exc_info[1] is None:
        return None
    error = record.exc_info[1]
    plain = isinstance(error, _ABOUT_THE_MACHINE) and not isinstance(error, RecursionError)
    frames = [
        f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    return {
        "type": type(error).__name__,
        "message": str(error) if plain else _LEFT_OUT,
        "frames": frames,
    }


def log_facts(
    logger: logging.Logger, level: int, message: str, facts: Mapping[str, Any], **options: Any
) -> None:
    """Log a line with facts."""
    logger.log(level, message, extra={"facts": facts}, **options)


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if record.name.partition(".")[0] not in OWN:
        # asyncio and others add the representation of what failed in further lines.
        message = message.partition("\n")[0]
    return message


def _time(record: logging.LogRecord, separator: str) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(separator, timespec="milliseconds").replace("+00:00", "Z")


def _not_told_twice(record: logging.LogRecord) -> bool:
    """Leaves out what uvicorn says of a request whose failure was logged with its id, and of an
    upgrade that was refused, which it takes for an app that forgot to answer."""
    return not (record.name == "uvicorn.error" and record.msg in _TOLD)
