"""A text as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing show.

The form is the JSON object form of Chrome's trace events: `traceEvents`, times in microseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import IO, Any, Final

from edge_sdk.closing import Closing
from edge_sdk.errors import CosdError, InvalidRequest
from edge_sdk.text.round import Round

_PROCESS: Final = 1
_TEXT, _DRAFT, _SERVER, _FLIGHT = 1, 2, 3, 10  # numbers of tracks; a lane is _FLIGHT + its slot
_LONGEST: Final = 60  # letters of a piece of text that are shown


class Trace(Closing):
    """Writes a file of one text, event by event, as a context manager.

    Tracks: the text, the draft, one lane for each block in flight at once, the server. The
    server's time is placed in the middle of a block's flight, and after that of the block
    before: the server reports how long it took, not when.

    The file appears when the trace ends, whole, also where it ended in an error or was
    interrupted; until then events go into a hidden file beside it.

    Raises:
        InvalidRequest: the file cannot be made.
        CosdError: it cannot be written, for instance on a full disk; nothing is left then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = time.perf_counter()
        self._lanes: list[float] = []
        self._server_end = self._start
        self._piece: tuple[float, str, int] | None = None
        self._begun = False
        self._first = True
        try:
            if path.is_dir():
                raise InvalidRequest(
                    f"{path} is a folder; name a file for the trace", field="trace"
                )
            if path.exists() and not path.is_file():
                raise InvalidRequest(
                    f"the trace cannot be written to {path}: it is no plain file", field="trace"
                )
            self._part = path.with_name(f".{path.name}.{os.getpid()}.part")
            self._file: IO[str] = self._part.open("x", encoding="utf-8")
        except OSError as error:
            raise InvalidRequest(
                f"the trace {path} cannot be made: {error.strerror}; name a file in a folder that "
                f"exists and can be written to",
                field="trace",
            ) from error
        self._write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        self._name("process_name", 0, "cosd")
        for track, name in ((_TEXT, "text"), (_DRAFT, "draft"), (_SERVER, "server")):
            self._track(track, name)

    def round(self, ended: Round) -> None:
        """A round ended; for `on_round`."""
        title = _title(ended)
        if ended.draft_begin is not None and ended.draft_end is not None:
            self._opened(ended.draft_begin)
            self._span(_DRAFT, title, ended.draft_begin, ended.draft_end, {})
        begin = ended.server_begin
        if ended.sent is None or ended.received is None or begin is None:
            return
        self._opened(ended.sent)
        lane = self._lane(ended.sent, ended.received)
        self._span(lane, title, ended.sent, ended.received, _facts(ended))
        begin = max(begin, self._server_end)
        end = min(begin + ended.server_seconds, ended.received)
        if begin < end:
            self._server_end = end
            self._span(_SERVER, title, begin, end, {"reported_ms": 1000 * ended.server_seconds})

    def piece(self, text: str, tokens: int) -> None:
        """A piece of the text has settled; it is shown until the next one comes."""
        now = time.perf_counter()
        self._opened(now)
        self._shown(now)
        self._piece = (now, text, tokens)

    def close(self) -> None:
        """Complete the file. Idempotent."""
        if self._file.closed:
            return
        self._shown(time.perf_counter())
        self._write("\n]}\n")
        try:
            self._file.close()
            self._part.replace(self._path)
        except OSError as error:
            raise self._failed(error) from error

    def _opened(self, until: float) -> None:
        """Before the first event of a text: connection, session and prompt."""
        if not self._begun:
            self._begun = True
            self._span(_TEXT, "open", self._start, until, {})

    def _shown(self, until: float) -> None:
        if self._piece is not None:
            begin, text, tokens = self._piece
            name = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
            self._span(_TEXT, name or "(held back)", begin, until, {"tokens": tokens})
            self._piece = None

    def _lane(self, sent: float, received: float) -> int:
        """A lane that is free from `sent` on."""
        free = [slot for slot, end in enumerate(self._lanes) if end <= sent]
        slot = free[0] if free else len(self._lanes)
        if not free:
            self._lanes.append(received)
            self._track(_FLIGHT + slot, f"flight {slot + 1}")
        self._lanes[slot] = received
        return _FLIGHT + slot

    def _track(self, track: int, name: str) -> None:
        self._name("thread_name", track, name)
        order = {"sort_index": track}
        self._event({"ph": "M", "name": "thread_sort_index", "tid": track, "args": order})

    def _name(self, kind: str, track: int, name: str) -> None:
        self._event({"ph": "M", "name": kind, "tid": track, "args": {"name": name}})

    def _span(self, track: int, name: str, begin: float, end: float, facts: dict[str, Any]) -> None:
        # Both ends are rounded, not the length, so that what touches here touches there too.
        ts, until = self._micros(begin), self._micros(end)
        self._event(
            {
                "ph": "X",
                "name": name,
                "cat": "cosd",
                "tid": track,
                "ts": ts,
                "dur": max(0, until - ts),
                "args": facts,
            }
        )

    def _micros(self, moment: float) -> int:
        return max(0, round(1e6 * (moment - self._start)))

    def _event(self, event: dict[str, Any]) -> None:
        separator = "" if self._first else ",\n"
        self._first = False
        text = json.dumps({"pid": _PROCESS, **event}, separators=(",", ":"))
        self._write(separator + text)

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> CosdError:
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._part.unlink(missing_ok=True)
        return CosdError(f"the trace {self._path} cannot be written: {error.strerror}")


def _title(ended: Round) -> str:
    if ended.plan is not None and not ended.plan.speculate:
        return f"server alone: {ended.tokens} tokens"
    if ended.sequence is None:
        return "given up"
    if ended.stale:
        return f"block {ended.sequence}: stale"
    return f"block {ended.sequence}: {ended.accepted} of {ended.gamma} accepted"


def _facts(ended: Round) -> dict[str, Any]:
    facts: dict[str, Any] = {
        name: getattr(ended, name)
        for name in ("gamma", "accepted", "tokens", "settled", "asks", "up_bytes", "down_bytes")
    }
    if ended.plan is not None:
        facts |= {"window": ended.plan.window, "probe": ended.plan.probe}
    return facts
