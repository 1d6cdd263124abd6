"""The fused graph of a decoder of the Llama or Gemma family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from export.backends.fused_shape import DecoderShape
from export.backends.rotation import Rotation
from export.external_data import ExternalData
from export.last_row import BOUNDS
from export.progress import Stage

_MICROSOFT = "com.microsoft"
_OPSET, _IR = 17, 9  # read by onnxruntime from 1.15 on
_LENGTHS = ("seqlens_k", "total_sequence_length")
_ACTIVATIONS: dict[str, tuple[str, dict[str, float]]] = {
    "silu": ("QuickGelu", {"alpha": 1.0}),
    "gelu_pytorch_tanh": ("FastGelu", {}),
    "gelu": ("Gelu", {}),
}


class FusedGraph:
    """Writes one graph.

    Inputs are `input_ids` [1, n], `seqlens_k` [1], `total_sequence_length` (a scalar) and
    `past_key_values.<layer>.key|value` [1, key heads, capacity, head]; outputs are the logits
    of the last row [1, 1, V_D] and `present.<layer>.key|value`, which are meant to be the
    same buffers as the past.

    Args:
        shape: sizes and constants.
        weights: fp32 tensors by their names in transformers.
        data: where weights are written.
        stage: advanced by one for each tensor.
    """

    def __init__(
        self, shape: DecoderShape, weights: Mapping[str, Any], data: ExternalData, stage: Stage
    ) -> None:
        self._shape = shape
        self._weights = weights
        self._data = data
        self._stage = stage
        self._nodes: list[NodeProto] = []
        self._tensors: list[TensorProto] = []

    def build(self) -> ModelProto:
        """The model; its weights are in `data` afterwards."""
        shape = self._shape
        for index, rotation in enumerate(shape.rotations):
            self._rotation(index, rotation)
        for name, value in BOUNDS.items():
            self._add(name, np.array([value], dtype=np.int64))
        self._add("embedding", self._weight("model.embed_tokens.weight"))
        residual = self._node("Gather", ["embedding", "input_ids"], "embedded")
        if shape.embedding_scale != 1.0:
            residual = self._scaled("Mul", residual, "embedding_scale", shape.embedding_scale)
        normed = self._norm(residual, "model.layers.0.input_layernorm", "normed")
        for layer in range(shape.layers):
            normed, residual = self._layer(layer, normed, residual)
        self._head(normed)
        return self._model()

    def _rotation(self, index: int, rotation: Rotation) -> None:
        """Cosines and sines of every position, made when the graph is loaded: in the file they
        would take more room than a layer."""
        at = f"rotation.{index}"
        self._add(f"{at}.frequencies", rotation.frequencies[None])
        ends = {"start": 0, "limit": self._shape.context, "step": 1}
        for name, value in ends.items():
            self._add(f"{at}.{name}", np.array(value, dtype=np.float32))
        self._add(f"{at}.column", np.array([-1, 1], dtype=np.int64))
        self._add(f"{at}.factor", np.array(rotation.factor, dtype=np.float32))
        positions = self._node("Range", [f"{at}.{name}" for name in ends], f"{at}.positions")
        column = self._node("Reshape", [positions, f"{at}.column"], f"{at}.rows")
        angles = self._node("Mul", [column, f"{at}.frequencies"], f"{at}.angles")
        for kind in ("Cos", "Sin"):
            plain = self._node(kind, [angles], f"{at}.plain_{kind}")
            self._node("Mul", [plain, f"{at}.factor"], f"{at}.{kind}")

    def _layer(self, layer: int, normed: str, residual: str) -> tuple[str, str]:
        at, final = f"model.layers.{layer}", layer == self._shape.layers - 1
        attended = self._attention(layer, normed)
        if final:
            # Nothing but keys and values of the other rows is needed any more.
            attended = self._last_row(attended)
            residual = self._last_row(residual)
        mixed = self._linear(f"{at}.attention_out", attended, [f"{at}.self_attn.o_proj"])
        before = f"{at}.post_attention_layernorm"
        if self._shape.family.sandwich:
            mixed = self._norm(mixed, before, f"{mixed}.normed_out")
            before = f"{at}.pre_feedforward_layernorm"
        normed, residual = self._skip_norm(mixed, residual, before, final=False)
        both = self._linear(f"{at}.gate_up", normed, [f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"])
        gate, up = f"{at}.gate", f"{at}.up"
        self._nodes.append(
            helper.make_node("Split", [both], [gate, up], name=both + "_split", axis=-1)
        )
        kind, options = _ACTIVATIONS[self._shape.activation]
        gate = self._node(kind, [gate], f"{at}.activated", domain=_MICROSOFT, **options)
        gated = self._node("Mul", [gate, up], f"{at}.gated")
        down = self._linear(f"{at}.down", gated, [f"{at}.mlp.down_proj"])
        if self._shape.family.sandwich:
            down = self._norm(down, f"{at}.post_feedforward_layernorm", f"{down}.normed_out")
        after = "model.norm" if final else f"model.layers.{layer + 1}.input_layernorm"
        return self._skip_norm(down, residual, after, final=final)

    def _attention(self, layer: int, normed: str) -> str:
        shape, at = self._shape, f"model.layers.{layer}"
        parts = [f"{at}.self_attn.{kind}_proj" for kind in "qkv"]
        packed = self._linear(f"{at}.qkv", normed, parts)
        heads = [packed, "", ""]
        if shape.family.head_norms:
            heads = self._normed_heads(at, packed)
        result = f"{at}.attended"
        kinds = ("key", "value")
        rotation = f"rotation.{shape.rotation_of[layer]}"
        self._nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [
                    *heads,
                    *[f"past_key_values.{layer}.{kind}" for kind in kinds],
                    *_LENGTHS,
                    *[f"{rotation}.{kind}" for kind in ("Cos", "Sin")],
                ],
                [result, *[f"present.{layer}.{kind}" for kind in kinds]],
                name=result,
                domain=_MICROSOFT,
                num_heads=shape.heads,
                kv_num_heads=shape.key_heads,
                scale=shape.scale,
                do_rotary=1,
                rotary_interleaved=0,
                local_window_size=shape.windows[layer],
                softcap=shape.score_cap,
            )
        )
        return result

    def _normed_heads(self, at: str, packed: str) -> list[str]:
        shape = self._shape
        widths = np.array([shape.heads, shape.key_heads, shape.key_heads]) * shape.head
        self._add(f"{at}.widths", widths.astype(np.int64))
        names = [f"{at}.{kind}" for kind in "qkv"]
        self._nodes.append(
            helper.make_node(
                "Split", [packed, f"{at}.widths"], names, name=f"{packed}_split", axis=-1
            )
        )
        for index, (kind, count) in enumerate((("q", shape.heads), ("k", shape.key_heads))):
            for name, sizes in (("split", [0, 0, count, shape.head]), ("join", [0, 0, -1])):
                self._add(f"{at}.{kind}_{name}", np.array(sizes, dtype=np.int64))
            rows = self._node("Reshape", [names[index], f"{at}.{kind}_split"], f"{at}.{kind}_heads")
            normed = self._norm(rows, f"{at}.self_attn.{kind}_norm", f"{at}.{kind}_normed")
            names[index] = self._node("Reshape", [normed, f"{at}.{kind}_join"], f"{at}.{kind}_flat")
        return names

    def _head(self, normed: str) -> None:
        if self._shape.tied:
            matrix = self._node("Transpose", ["embedding"], "head", perm=[1, 0])
        else:
            matrix = self._add("head", self._weight("lm_head.weight").T)
        cap = self._shape.logit_cap
        logits = self._node("MatMul", [normed, matrix], "plain_logits" if cap else "logits")
        if cap:
            scaled = self._scaled("Div", logits, "logit_cap", cap)
            bounded = self._node("Tanh", [scaled], "bounded")
            self._node("Mul", [bounded, "logit_cap"], "logits")

    def _scaled(self, kind: str, value: str, name: str, factor: float) -> str:
        self._add(name, np.array(factor, dtype=np.float32))
        return self._node(kind, [value, name], f"{value}.scaled")

    def _linear(self, name: str, value: str, parts: list[str]) -> str:
        """Linear layers with the same input as one: their outputs side by side."""
        matrix = np.concatenate([self._weight(f"{part}.weight") for part in parts])
        self._add(f"{name}.weight", matrix.T)
        biases = [self._weights.get(f"{part}.bias") for part in parts]
        if all(bias is None for bias in biases):
            return self._node("MatMul", [value, f"{name}.weight"], name)
        rows = [
            self._weight(f"{part}.bias")
            if bias is not None
            else np.zeros(len(self._weights[f"{part}.weight"]), np.float32)
            for part, bias in zip(parts, biases, strict=True)
        ]
        self._add(f"{name}.bias", np.concatenate(rows))
        plain = self._node("MatMul", [value, f"{name}.weight"], f"{name}.product")
        return self._node("Add", [plain, f"{name}.bias"], name)

    def _norm(self, value: str, module: str, name: str) -> str:
        return self._node(
            "SimplifiedLayerNormalization",
            [value, self._norm_weight(module)],
            name,
            axis=-1,
            epsilon=self._shape.epsilon,
            stash_type=1,
        )

    def _norm_weight(self, module: str) -> str:
        weight = self._weight(f"{module}.weight")
        return self._add(f"{module}.weight", weight + np.float32(self._shape.family.offset))

    def _skip_norm(self, value: str, residual: str, module: str, *, final: bool) -> tuple[str, str]:
        """The norm of a sum, and the sum."""
        normed, total = f"{value}.normed", f"{value}.sum"
        self._nodes.append(
            helper.make_node(
                "SkipSimplifiedLayerNormalization",
                [residual, value, self._norm_weight(module)],
                [normed] if final else [normed, "", "", total],
                name=normed,
                domain=_MICROSOFT,
                epsilon=self._shape.epsilon,
            )
        )
        return normed, total

    def _last_row(self, value: str) -> str:
        return self._node("Slice", [value, *BOUNDS], f"{value}.last")

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def _add(self, name: str, values: NDArray[Any]) -> str:
        self._tensors.append(self._data.add(name, values))
        self._stage.advance()
        return name

    def _weight(self, name: str) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self._weights[name].detach().numpy()
        return values

    def _model(self) -> ModelProto:
        shape, kinds = self._shape, ("key", "value")
        slot = [1, shape.key_heads, "capacity", shape.head]
        layers = range(shape.layers)
        graph = helper.make_graph(
            self._nodes,
            "decoder",
            [
                _value("input_ids", TensorProto.INT64, [1, "n"]),
                _value(_LENGTHS[0], TensorProto.INT32, [1]),
                _value(_LENGTHS[1], TensorProto.INT32, []),
                *[_cache(f"past_key_values.{i}.{kind}", slot) for i in layers for kind in kinds],
            ],
            [
                _value("logits", TensorProto.FLOAT, [1, 1, shape.vocabulary]),
                *[_cache(f"present.{i}.{kind}", slot) for i in layers for kind in kinds],
            ],
            self._tensors,
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR)


def _cache(name: str, shape: list[Any]) -> ValueInfoProto:
    return _value(name, TensorProto.FLOAT, shape)


def _value(name: str, kind: int, shape: list[Any]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)
