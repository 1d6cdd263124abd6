"""What stays on the device: choices, drafts, and a text that was cut off."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from cosd_app.state import Choices, Span
from edge_sdk.decoding.registry import METHODS
from edge_sdk.draft.manifest import MANIFEST_NAME, Manifest, file_sha256
from edge_sdk.errors import CosdError, PreparationError
from edge_sdk.home import cosd_home
from edge_sdk.text.tokens import Origin

log = logging.getLogger(__name__)

_THEMES: Final = ("system", "light", "dark")


def data_folder() -> Path:
    """Where the app may write: what Flet names on a phone (the app's own folder is read-only
    there), `COSD_HOME` and the user's cache elsewhere."""
    given = os.environ.get("FLET_APP_STORAGE_DATA")
    return Path(given) if given else cosd_home() / "phone"


class Storage:
    """The app's folder.

    Args:
        folder: made when something is first written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._choices = folder / "choices.json"
        self._text = folder / "text.json"

    @property
    def key_file(self) -> Path:
        return self.folder / "key"

    @property
    def tables(self) -> Path:
        """Byte tables of targets."""
        return self.folder / "tables"

    def draft(self, name: str) -> Path:
        """Where a draft is, or would be."""
        return self.folder / "drafts" / name

    def partial(self, name: str) -> Path:
        """Where a draft is put together."""
        return self.folder / "partial" / name

    def installed(self, name: str) -> str | None:
        """SHA-256 of an installed draft's manifest; None if it is not there or not whole."""
        folder = self.draft(name)
        if not name or not folder.is_dir():
            return None
        try:
            Manifest.read(folder).check_files(folder)
            return file_sha256(folder / MANIFEST_NAME)
        except (CosdError, OSError) as error:
            log.warning("the draft %s is not usable: %s", name, error)
            return None

    def remove(self, name: str) -> None:
        """Delete a draft, whole or in parts."""
        shutil.rmtree(self.draft(name), ignore_errors=True)
        shutil.rmtree(self.partial(name), ignore_errors=True)

    def load_choices(self) -> Choices:
        """What was set last; whatever is not usable is as on the first day."""
        document = self._read(self._choices)
        known = {f.name: type(getattr(Choices(), f.name)) for f in fields(Choices)}
        values = {
            name: kind(document[name])
            for name, kind in known.items()
            if type(document.get(name)) in ((int, float) if kind is float else (kind,))
        }
        usable = (
            math.isfinite(values.get("temperature", 0.0))
            and values.get("max_tokens", 1) > 0
            and values.get("theme", "system") in _THEMES
            and values.get("method", "hybrid") in METHODS
            and _plain(values.get("draft", ""))
        )
        return Choices(**values) if usable else Choices()

    def save_choices(self, choices: Choices) -> None:
        """Raises: PreparationError: it cannot be written."""
        self._write(self._choices, asdict(choices))

    def load_text(self) -> tuple[str, tuple[Span, ...]] | None:
        """Prompt and text that were being written when the app ended, if it was so."""
        document = self._read(self._text)
        try:
            spans = tuple(Span(str(text), Origin(origin)) for text, origin in document["spans"])
            return str(document["prompt"]), spans
        except (KeyError, TypeError, ValueError):
            return None

    def save_text(self, prompt: str, spans: tuple[Span, ...]) -> None:
        """Raises: PreparationError: it cannot be written."""
        pairs = [(span.text, span.origin.value) for span in spans]
        self._write(self._text, {"prompt": prompt, "spans": pairs})

    def forget_text(self) -> None:
        """The text is complete, or given up."""
        with contextlib.suppress(OSError):
            self._text.unlink(missing_ok=True)

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            document = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            log.warning("%s is not usable: %s", path, error)
            return {}
        return document if isinstance(document, dict) else {}

    def _write(self, path: Path, document: dict[str, Any]) -> None:
        partial = path.with_suffix(".partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(document), "utf-8")
            partial.replace(path)
        except OSError as error:
            raise PreparationError(
                f"{path} cannot be written ({error.strerror}); free some space"
            ) from error


def _plain(name: str) -> bool:
    """A name that is one part of a path."""
    return name == "" or (Path(name).name == name and name not in (".", ".."))
