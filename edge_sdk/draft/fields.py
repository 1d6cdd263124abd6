"""Reading an untrusted JSON object field by field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Self

from edge_sdk.errors import ModelFolderInvalid

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Fields:
    """An object of a JSON document whose every field is checked when it is read.

    Args:
        value: what `json.loads` gave.
        path: file that it came from, for messages.
        where: place in the file, for messages.

    Raises:
        ModelFolderInvalid: (every method) the value or field is missing or of another type.
    """

    def __init__(self, value: object, path: Path, where: str) -> None:
        self._path = path
        self._where = where
        if not isinstance(value, dict):
            raise ModelFolderInvalid(
                f"{path}: {where} is not a JSON object; export the model again"
            )
        self._values: dict[str, Any] = value

    def names(self) -> list[str]:
        return list(self._values)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None

    def wrong(self, name: str, expected: str) -> ModelFolderInvalid:
        """The error for a field that is not what is expected."""
        got = repr(self._values.get(name))
        shown = got if len(got) <= 60 else f"{got[:57]}..."
        found = f"is {shown}" if name in self._values else "is missing or wrong"
        return ModelFolderInvalid(
            f"{self._path}: field {name!r} of {self._where} {found}, expected {expected}; "
            "export the model again",
            field=name,
        )

    def integer(self, name: str, *, low: int, high: int | None = None) -> int:
        value = self._values.get(name)
        if type(value) is not int or value < low or (high is not None and value > high):
            limit = "" if high is None else f" and at most {high}"
            raise self.wrong(name, f"a whole number of at least {low}{limit}")
        return value

    def text(self, name: str, *, empty: bool = False) -> str:
        value = self._values.get(name)
        if not isinstance(value, str) or (not value and not empty):
            raise self.wrong(name, "a text")
        return value

    def sha256(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str) or not _SHA256.fullmatch(value):
            raise self.wrong(name, "a SHA-256 in lower-case hexadecimal")
        return value

    def ids(self, name: str, width: int) -> tuple[int, ...]:
        """Token ids below `width`."""
        value = self._values.get(name)
        if not isinstance(value, list) or not all(
            type(item) is int and 0 <= item < width for item in value
        ):
            raise self.wrong(name, f"a list of token ids below {width}")
        return tuple(value)

    def texts(self, name: str) -> dict[str, str]:
        """A table of texts."""
        value = self._values.get(name)
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise self.wrong(name, "a table of texts")
        return dict(value)

    def child(self, name: str) -> Self:
        """The object in a field."""
        return type(self)(self._values.get(name), self._path, f"{name!r}")

    def objects(self, name: str) -> dict[str, Self]:
        """A table of objects."""
        table = self.child(name)
        return {
            key: type(self)(value, self._path, f"{name}.{key}")
            for key, value in table._values.items()
        }
