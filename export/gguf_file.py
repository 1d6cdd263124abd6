"""The header of a GGUF file: metadata and tensor directory.

Read here and not with `gguf.GGUFReader`, which needs 11 s for a vocabulary of 262,144
tokens and answers a truncated file with a numpy traceback.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from edge_sdk.errors import ModelFolderInvalid, UnsupportedModel

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_ITEMS = 1 << 24  # tokens, merges or tensors; the largest in use have under 2**20

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies: `offset` in bytes from the start of the data, `kind` a GGML type."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def items(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a GGUF file says about itself."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: tuple[TensorEntry, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the header and check that the tensors' data are all there.

        Raises:
            ModelFolderInvalid: no such file, not a GGUF file, or a truncated one.
            UnsupportedModel: a GGUF version or tensor type that is not known here.
        """
        try:
            with (
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            ):
                return cls._parse(path, data)
        except FileNotFoundError as error:
            raise ModelFolderInvalid(
                f"{path} does not exist; give the path of a GGUF file"
            ) from error
        except (OSError, ValueError) as error:
            raise ModelFolderInvalid(f"{path} is not a readable GGUF file ({error})") from error
        except (struct.error, _Truncated) as error:
            raise ModelFolderInvalid(
                f"{path} ends in the middle of its header: the file is truncated, fetch it again"
            ) from error

    def text(self, key: str) -> str:
        return self._get(key, str)

    def number(self, key: str) -> int:
        return self._get(key, int)

    def list(self, key: str) -> list[Any]:
        return self._get(key, list)

    def _get(self, key: str, kind: type[T]) -> T:
        value = self.metadata.get(key)
        if not isinstance(value, kind):
            raise ModelFolderInvalid(
                f"{self.path} has no {kind.__name__} under {key!r}; it is no complete language "
                "model, use another GGUF file"
            )
        return value

    @classmethod
    def _parse(cls, path: Path, data: mmap.mmap) -> Self:
        if data[:4] != MAGIC:
            raise ModelFolderInvalid(f"{path} is not a GGUF file (it does not begin with GGUF)")
        cursor = _Cursor(data, 4)
        version = cursor.scalar("I")
        if version not in VERSIONS:
            raise UnsupportedModel(
                f"{path} is of GGUF version {version}; versions {VERSIONS} can be read, "
                "convert the file with a current llama.cpp"
            )
        tensors, keys = cursor.count(), cursor.count()
        metadata = {}
        for _ in range(keys):
            key = cursor.string()
            metadata[key] = cursor.value(cursor.scalar("I"))
        entries = tuple(
            TensorEntry(
                cursor.string(),
                tuple(cursor.scalar("Q") for _ in range(cursor.scalar("I"))),
                cursor.scalar("I"),
                cursor.scalar("Q"),
            )
            for _ in range(tensors)
        )
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1:
            raise ModelFolderInvalid(f"{path} has an alignment of {alignment!r}, fetch it again")
        start = -(-cursor.position // alignment) * alignment
        _check_data(path, entries, start, len(data))
        return cls(path, metadata, entries)


class _Truncated(Exception):
    """The header goes on beyond the end of the file."""


class _Cursor:
    def __init__(self, data: mmap.mmap, position: int) -> None:
        self._data = data
        self.position = position

    def scalar(self, code: str) -> Any:
        layout = f"<{code}"
        (value,) = struct.unpack_from(layout, self._data, self.position)
        self.position += struct.calcsize(layout)
        return value

    def count(self) -> int:
        value: int = self.scalar("Q")
        if value > MAX_ITEMS:
            raise _Truncated
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        end = self.position + length
        if end > len(self._data):
            raise _Truncated
        # A token may hold bytes that are no UTF-8; surrogates keep them apart.
        value = self._data[self.position : end].decode("utf-8", "surrogateescape")
        self.position = end
        return value

    def value(self, kind: int, *, nested: bool = True) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY and nested:
            return self._array()
        raise _Truncated

    def _array(self) -> list[Any]:
        kind, length = self.scalar("I"), self.count()
        if kind in _SCALARS:
            layout = f"<{length}{_SCALARS[kind]}"
            values = list(struct.unpack_from(layout, self._data, self.position))
            self.position += struct.calcsize(layout)
            return values
        return [self.value(kind, nested=False) for _ in range(length)]


def _check_data(path: Path, tensors: tuple[TensorEntry, ...], start: int, size: int) -> None:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    for tensor in tensors:
        try:
            block, width = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.kind)]
        except (KeyError, ValueError) as error:
            raise UnsupportedModel(
                f"tensor {tensor.name} of {path} is of the unknown GGML type {tensor.kind}; "
                "use a file with a common quantisation, e.g. Q4_K_M or Q8_0"
            ) from error
        if start + tensor.offset + tensor.items // block * width > size:
            raise ModelFolderInvalid(
                f"{path} ends before the data of tensor {tensor.name}: the file is truncated, "
                "fetch it again"
            )
