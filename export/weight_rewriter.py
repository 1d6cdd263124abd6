"""Nodes and initializers of a decoder graph for weights in fewer bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from edge_sdk.errors import UnsupportedModel
from export.blockwise import quantise_blocks
from export.external_data import ExternalData, place_of, read_tensor
from export.linear_layers import Linear, attribute, find_heads, find_linears, is_matrix
from export.progress import Stage
from export.recipe import Recipe, Rounding

_MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True)
class _Rounded:
    """A rounded [N, K] weight: its initializers, and how they are laid out."""

    packed: TensorProto
    scales: TensorProto
    outputs: int
    inputs: int
    bits: int
    block: int


class WeightRewriter:
    """Replaces the nodes and initializers of one model.

    Args:
        model: changed in place.
        folder: where its external data lie.
        data: where the new weights go.
        stage: advanced by the bytes of each old weight.
        power: mean square of the inputs of layers [K] by the name of what comes out; may be
            empty. See `export.activation_power`.
    """

    def __init__(
        self,
        model: ModelProto,
        folder: Path,
        data: ExternalData,
        stage: Stage,
        power: Mapping[str, NDArray[np.float32]],
    ) -> None:
        self._model = model
        self._nodes = model.graph.node
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._owners = _owners(self._tensors)
        self._folder = folder
        self._data = data
        self._stage = stage
        self._power = power
        self._written: list[TensorProto] = []
        self._casts: list[NodeProto] = []
        self._done: set[str] = set()
        self._rounded: dict[tuple[str, bool], _Rounded] = {}

    def quantise(self, recipe: Recipe) -> None:
        """Linear layers become MatMulNBits, the embedding GatherBlockQuantized.

        Raises:
            UnsupportedModel: no linear layer of the graph has constant weights.
        """
        linears = find_linears(self._model)
        if not linears:
            raise UnsupportedModel(
                "no linear layer of the graph has constant weights, so there is nothing to "
                "store in fewer bits; export with 32 bits"
            )
        heads = find_heads(self._model, linears)
        tables = {self._owner(linear.weight) for linear in heads if linear.transposed}
        rows = {linear.outputs for linear in heads}
        states = {linear.inputs for linear in heads}
        # A tied embedding is rounded as its head needs it.
        for linear in heads:
            if linear.transposed and self._owner(linear.weight) in self._tensors:
                self._round(self._owner(linear.weight), True, recipe.head, linear.output)
        replaced = {}
        for index, node in enumerate(self._nodes):
            if self._is_embedding(node, tables, rows, recipe.head):
                replaced[index] = [self._gather(node, recipe.head)]
        for linear in linears:
            rounding = recipe.head if linear in heads else recipe.of(linear, states)
            replaced[linear.index] = self._matmul(linear, rounding, recipe.accuracy_level)
        nodes = [
            new for index, node in enumerate(self._nodes) for new in replaced.get(index, [node])
        ]
        used = {name for node in nodes if node.op_type != "Transpose" for name in node.input}
        used |= {output.name for output in self._model.graph.output}
        nodes = [node for node in nodes if node.op_type != "Transpose" or node.output[0] in used]
        used = {name for node in nodes for name in node.input}
        del self._nodes[:]
        self._nodes.extend(nodes)
        for name in [name for name in self._tensors if name not in used]:
            del self._tensors[name]
        if all(entry.domain != _MICROSOFT for entry in self._model.opset_import):
            self._model.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))

    def copy(self, *, narrow: bool) -> None:
        """Write what is left of the initializers, matrices in fp16 if `narrow`."""
        # Frequencies and tables of positions are matrices too, but no weights.
        weights = {linear.weight for linear in find_linears(self._model)}
        weights |= {node.input[0] for node in self._nodes if node.op_type == "Gather"}
        written: dict[str, TensorProto] = {}
        for name, tensor in sorted(self._tensors.items(), key=lambda item: item[0] in self._owners):
            half = narrow and is_matrix(self._tensors, name) and name in weights
            stored = f"{name}_fp16" if half else name
            owner = written.get(self._owner(name)) if name in self._owners else None
            if owner is not None:
                found = self._data.alias(stored, owner, tuple(tensor.dims))
            else:
                values = read_tensor(tensor, self._folder)
                found = self._data.add(stored, _as_fp16(name, values) if half else values)
            if half:
                self._casts.append(helper.make_node("Cast", [stored], [name], to=TensorProto.FLOAT))
            written[name] = found
            self._advance(name)
        for cast in reversed(self._casts):
            self._nodes.insert(0, cast)
        del self._model.graph.initializer[:]
        self._model.graph.initializer.extend([*self._written, *written.values()])

    def _owner(self, name: str) -> str:
        return self._owners.get(name, name)

    def _is_embedding(
        self, node: NodeProto, tables: set[str], rows: set[int], rounding: Rounding
    ) -> bool:
        """Whether a node looks tokens up: in the head's own table, in one with as many rows as
        the head has outputs, or by `input_ids` (positions are looked up otherwise, and suffer
        from few bits). The table splits into whole blocks."""
        table = node.input[0] if node.op_type == "Gather" else ""
        if not is_matrix(self._tensors, table):
            return False
        count, width = self._tensors[table].dims
        known = table in tables or count in rows or node.input[1] == "input_ids"
        whole = width % rounding.block(width) == 0
        return attribute(node, "axis", 0) == 0 and known and whole

    def _matmul(self, linear: Linear, rounding: Rounding, accuracy: int) -> list[NodeProto]:
        node = self._nodes[linear.index]
        rounded = self._round(linear.weight, linear.transposed, rounding, linear.output)
        bias = node.op_type == "Gemm" and len(node.input) > 2 and node.input[2] != ""
        result = f"{linear.output}_without_bias" if bias else linear.output
        matmul = helper.make_node(
            "MatMulNBits",
            [linear.value, rounded.packed.name, rounded.scales.name],
            [result],
            name=f"{linear.output}_{rounded.bits}bit",
            domain=_MICROSOFT,
            K=rounded.inputs,
            N=rounded.outputs,
            bits=rounded.bits,
            block_size=rounded.block,
            accuracy_level=accuracy,
        )
        if not bias:
            return [matmul]
        return [matmul, helper.make_node("Add", [result, node.input[2]], [linear.output])]

    def _gather(self, node: NodeProto, rounding: Rounding) -> NodeProto:
        rounded = self._round(node.input[0], True, rounding, "")
        flat = self._data.alias(
            f"{rounded.packed.name}_rows",
            rounded.packed,
            (rounded.outputs, rounded.inputs * rounded.bits // 8),
        )
        self._written.append(flat)
        return helper.make_node(
            "GatherBlockQuantized",
            [flat.name, node.input[1], rounded.scales.name],
            [node.output[0]],
            name=f"{node.output[0]}_{rounded.bits}bit",
            domain=_MICROSOFT,
            bits=rounded.bits,
            block_size=rounded.block,
            gather_axis=0,
            quantize_axis=1,
        )

    def _round(self, name: str, transposed: bool, rounding: Rounding, layer: str) -> _Rounded:
        """A weight in few bits, written once however often it is used."""
        key = name, transposed
        if key not in self._rounded:
            owner = self._rounded.get((self._owner(name), transposed))
            self._rounded[key] = (
                self._part(name, owner)
                if owner is not None
                else self._make(name, transposed, rounding, layer)
            )
            self._advance(name)
        return self._rounded[key]

    def _make(self, name: str, transposed: bool, rounding: Rounding, layer: str) -> _Rounded:
        weights: NDArray[np.float32] = read_tensor(self._tensors[name], self._folder)
        matrix = weights if transposed else weights.T
        outputs, inputs = matrix.shape
        bits, block = rounding.bits, rounding.block(inputs)
        blocks = quantise_blocks(matrix, bits=bits, block=block, power=self._power.get(layer))
        stored = f"{name}_{'rows' if transposed else 'columns'}_q{bits}"
        packed = self._data.add(stored, blocks.packed)
        scales = self._data.add(f"{stored}_scales", blocks.scales)
        self._written += [packed, scales]
        return _Rounded(packed, scales, outputs, inputs, bits, block)

    def _part(self, name: str, owner: _Rounded) -> _Rounded:
        """The first rows of a weight."""
        outputs = int(self._tensors[name].dims[0])
        packed, scales = (
            self._data.alias(f"{name}{suffix}", tensor, (outputs, *tensor.dims[1:]))
            for suffix, tensor in (("_packed", owner.packed), ("_scales", owner.scales))
        )
        self._written += [packed, scales]
        return _Rounded(packed, scales, outputs, owner.inputs, owner.bits, owner.block)

    def _advance(self, name: str) -> None:
        if name not in self._done:
            self._done.add(name)
            self._stage.advance(byte_size(self._tensors[name]))


def byte_size(tensor: TensorProto) -> int:
    """Bytes of the values of an initializer."""
    width = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(math.prod(tensor.dims) * width)


def _owners(tensors: Mapping[str, TensorProto]) -> dict[str, str]:
    """Names of initializers that are the first rows of another, with the name of that."""
    longest: dict[tuple[str, int], str] = {}
    places = {name: place for name in tensors if (place := place_of(tensors[name])) is not None}
    for name, place in places.items():
        if place not in longest or tensors[name].dims[0] > tensors[longest[place]].dims[0]:
            longest[place] = name
    return {name: longest[place] for name, place in places.items() if longest[place] != name}


def _as_fp16(name: str, values: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.isfinite(half).all():
        raise UnsupportedModel(
            f"weights of {name!r} do not fit fp16 (largest {np.abs(values).max():g}); "
            "export with 32, 8 or 4 bits"
        )
    return half
