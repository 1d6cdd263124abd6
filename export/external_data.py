"""Weights of an ONNX graph in a file beside it, one tensor in memory at a time."""

from __future__ import annotations

import math
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from edge_sdk.errors import ModelFolderInvalid

ALIGNMENT = 4096  # page size, so that the runtime can map every tensor
INLINE_BYTES = 1024  # tensors up to this size stay in the graph file


def data_name(graph: Path) -> str:
    """File name of the weights of a graph."""
    return f"{graph.name}.data"


def place_of(tensor: TensorProto) -> tuple[str, int] | None:
    """File name and offset of the values of an external initializer, else None."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return None
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return entries["location"], int(entries.get("offset", "0"))


def read_tensor(tensor: TensorProto, folder: Path) -> NDArray[Any]:
    """Values of an initializer; external ones are mapped from their file, not read.

    Raises:
        ModelFolderInvalid: the file of the tensor is missing or truncated.
    """
    if tensor.data_location != TensorProto.EXTERNAL:
        return numpy_helper.to_array(tensor)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = folder / entries["location"]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    try:
        return np.memmap(
            path,
            dtype=dtype,
            mode="r",
            offset=int(entries.get("offset", "0")),
            shape=tuple(tensor.dims),
        )
    except (OSError, ValueError) as error:
        raise ModelFolderInvalid(
            f"{path} does not hold the weights of tensor {tensor.name!r} ({error}); "
            "export the model again"
        ) from error


class ExternalData:
    """Writer of the weights file of one graph, a context manager.

    Args:
        graph: path the graph will be written to.
    """

    def __init__(self, graph: Path) -> None:
        self._location = data_name(graph)
        self._file = (graph.parent / self._location).open("wb")

    def add(self, name: str, values: NDArray[Any]) -> TensorProto:
        """Write values and return the initializer for them (in the graph itself if small)."""
        if values.nbytes <= INLINE_BYTES:
            return numpy_helper.from_array(np.asarray(values), name)
        padding = -self._file.tell() % ALIGNMENT
        self._file.write(b"\0" * padding)
        offset = self._file.tell()
        np.ascontiguousarray(values).tofile(self._file)
        tensor = TensorProto(
            name=name,
            dims=values.shape,
            data_type=onnx.helper.np_dtype_to_tensor_dtype(values.dtype),
            data_location=TensorProto.EXTERNAL,
        )
        for key, value in (
            ("location", self._location),
            ("offset", str(offset)),
            ("length", str(values.nbytes)),
        ):
            tensor.external_data.add(key=key, value=value)
        return tensor

    def alias(self, name: str, tensor: TensorProto, shape: tuple[int, ...]) -> TensorProto:
        """A second initializer of another shape over the bytes of the first, or the first of
        them. A small one, which lies in the graph, is copied."""
        twin = TensorProto()
        twin.CopyFrom(tensor)
        twin.name = name
        del twin.dims[:]
        twin.dims.extend(shape)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        size = math.prod(shape) * dtype.itemsize
        if tensor.data_location != TensorProto.EXTERNAL:
            twin.raw_data = tensor.raw_data[:size]
        for entry in twin.external_data:
            if entry.key == "length":
                entry.value = str(size)
        return twin

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
