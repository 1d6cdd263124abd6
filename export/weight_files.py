"""The weight files of a Hugging Face folder: one, or shards with an index."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_sdk.errors import ModelFolderInvalid

_MAX_HEADER = 100 << 20  # the limit of the safetensors format
_NAMES = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """Files with weights.

    Attributes:
        paths: in order.
        parameters: weights in them all; None for files that say it only when they are loaded.
    """

    paths: tuple[Path, ...]
    parameters: int | None


def read_weight_files(folder: Path) -> WeightFiles:
    """Find the weights of a folder and check that they are whole: of a safetensors file its
    length, of shards also that every tensor of the index is in the shard that it names.

    Raises:
        ModelFolderInvalid: a file is missing or truncated, or does not fit its index.
    """
    for single in _NAMES:
        index = folder / f"{single}.index.json"
        if (folder / single).is_file():
            return _files({folder / single: ()})
        if index.is_file():
            return _files(_shards(index))
    raise ModelFolderInvalid(
        f"{folder} has no weights ({' or '.join(_NAMES)}); fetch the model again"
    )


def has_weights(folder: Path) -> bool:
    """Whether a folder names weights that transformers reads, whole or not."""
    return any(
        (folder / f"{name}{end}").is_file() for name in _NAMES for end in ("", ".index.json")
    )


def _files(tensors: Mapping[Path, tuple[str, ...]]) -> WeightFiles:
    counts = [_parameters(path, names) for path, names in tensors.items()]
    known = [count for count in counts if count is not None]
    return WeightFiles(tuple(tensors), sum(known) if len(known) == len(counts) else None)


def _shards(index: Path) -> dict[Path, tuple[str, ...]]:
    """Each shard with the tensors that the index has in it."""
    try:
        table = json.loads(index.read_bytes())["weight_map"]
        names = sorted({str(name) for name in table.values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFolderInvalid(
            f"{index} has no readable weight_map; fetch the model again"
        ) from error
    if not names:
        raise ModelFolderInvalid(f"{index} has an empty weight_map; fetch the model again")
    return {
        index.parent / Path(name).name: tuple(t for t, shard in table.items() if shard == name)
        for name in names
    }


def _parameters(path: Path, tensors: tuple[str, ...]) -> int | None:
    """Weights in a safetensors file that must hold `tensors`; None for another format."""
    try:
        size = path.stat().st_size
        if path.suffix != ".safetensors":
            if size == 0:
                raise ValueError("it is empty")
            return None
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, _MAX_HEADER):
                raise ValueError("its header is longer than the file")
            header: dict[str, Any] = json.loads(file.read(length))
        header.pop("__metadata__", None)
        end = 8 + length + max(entry["data_offsets"][1] for entry in header.values())
        if end != size:
            raise ValueError(f"it has {size} bytes instead of {end}")
        absent = [name for name in tensors if name not in header]
        if absent:
            raise ValueError(f"it lacks {absent[0]!r}, which the index has in it")
        count: int = sum(math.prod(entry["shape"]) for entry in header.values())
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        struct.error,
    ) as error:
        raise ModelFolderInvalid(
            f"weights {path} are missing or truncated ({error}); fetch the model again"
        ) from error
    return count
