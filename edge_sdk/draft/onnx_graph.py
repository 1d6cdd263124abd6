"""Inputs and outputs of a decoder graph, whoever exported it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from edge_sdk.errors import UnsupportedModel

_DTYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}

_FEEDS = {
    "input_ids": 2,
    "attention_mask": 2,
    "position_ids": 2,
    "seqlens_k": 1,
    "total_sequence_length": 0,
}  # names of integer inputs with their ranks


class NodeArg(Protocol):
    """Input or output of an onnxruntime session."""

    name: str
    type: str
    shape: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Feed:
    """An integer input."""

    name: str
    dtype: type[np.generic]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Inputs that tell GroupQueryAttention how much of a longer cache counts.

    Attributes:
        last: `seqlens_k` [1], tokens after the pass less one.
        total: `total_sequence_length`, a scalar, tokens after the pass.
    """

    last: Feed
    total: Feed


@dataclass(frozen=True, slots=True)
class CacheSlot:
    """Keys or values of one layer, which the graph reads and returns longer.

    Attributes:
        past: input name.
        present: output name.
        dtype: float32 or float16.
        before: dimensions before the length (batch 1 and, usually, heads).
        after: dimensions after it (usually the head's width).
    """

    past: str
    present: str
    dtype: type[np.generic]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def outer(self) -> int:
        return math.prod(self.before)

    @property
    def inner(self) -> int:
        return math.prod(self.after)

    def shape(self, length: int) -> list[int]:
        return [*self.before, length, *self.after]


@dataclass(frozen=True, slots=True)
class DecoderGraph:
    """What a session takes and gives.

    Attributes:
        ids: token ids [1, n].
        mask: attention mask [1, past + n], if the graph wants one.
        positions: position ids [1, n], if the graph wants them.
        lengths: given if keys and values lie in buffers longer than the text, past and present
            in the same one; None where the graph takes as many rows as there are tokens and
            returns longer ones.
        cache: keys and values of all layers.
        logits: output name.
        logits_dtype: float32 or float16.
        width: V_D, None where the graph leaves it open.
        every_row: whether logits come for all n rows, not only for the last.
    """

    ids: Feed
    mask: Feed | None
    positions: Feed | None
    lengths: Lengths | None
    cache: tuple[CacheSlot, ...]
    logits: str
    logits_dtype: type[np.generic]
    width: int | None
    every_row: bool

    @classmethod
    def read(cls, inputs: Sequence[NodeArg], outputs: Sequence[NodeArg]) -> Self:
        """Recognise the inputs and outputs of a session.

        Raises:
            UnsupportedModel: an input that is none of the above, or keys and values that do
                not pair up.
        """
        feeds: dict[str, Feed] = {}
        past: list[NodeArg] = []
        for node in inputs:
            if len(node.shape) > 2 and _is_cache(node):
                past.append(node)
            elif node.name in _FEEDS:
                rank = _FEEDS[node.name]
                if len(node.shape) != rank or node.type not in ("tensor(int64)", "tensor(int32)"):
                    raise _unsupported("input", node, f"integers of rank {rank} are expected")
                feeds[node.name] = Feed(node.name, _DTYPES[node.type])
            else:
                raise _unsupported("input", node, "nothing is known to feed it")
        if "input_ids" not in feeds:
            raise UnsupportedModel(
                "the graph has no input_ids; it is no decoder of token ids, export another model"
            )
        logits = _logits(outputs)
        present = [node for node in outputs if node is not logits]
        width, rows = logits.shape[2], logits.shape[1]
        return cls(
            ids=feeds["input_ids"],
            mask=feeds.get("attention_mask"),
            positions=feeds.get("position_ids"),
            lengths=_lengths(feeds),
            cache=tuple(_slot(a, b) for a, b in _pairs(past, present)),
            logits=logits.name,
            logits_dtype=_DTYPES[logits.type],
            width=width if isinstance(width, int) else None,
            every_row=rows != 1,
        )


def _lengths(feeds: dict[str, Feed]) -> Lengths | None:
    last, total = feeds.get("seqlens_k"), feeds.get("total_sequence_length")
    if (last is None) != (total is None):
        raise UnsupportedModel(
            "the graph has one of the inputs seqlens_k and total_sequence_length without the "
            "other; export the model with another backend"
        )
    return None if last is None or total is None else Lengths(last, total)


def _is_cache(node: NodeArg) -> bool:
    return node.type in ("tensor(float)", "tensor(float16)")


def _unsupported(what: str, node: NodeArg, why: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"the graph has {what} {node.name!r} of type {node.type} and shape {list(node.shape)}: "
        f"{why}; export the model with another backend"
    )


def _logits(outputs: Sequence[NodeArg]) -> NodeArg:
    found = [node for node in outputs if node.name == "logits"] or list(outputs[:1])
    if not found or len(found[0].shape) != 3 or not _is_cache(found[0]):
        raise UnsupportedModel(
            "the graph has no output of logits [1, n, V]; export the model for text generation"
        )
    return found[0]


def _pairs(past: list[NodeArg], present: list[NodeArg]) -> list[tuple[NodeArg, NodeArg]]:
    """Each input of the cache with the output that continues it: by the numbers and the
    letter of key or value in their names, else by their order."""
    if not past or len(past) != len(present):
        raise UnsupportedModel(
            f"the graph takes {len(past)} cache inputs and gives {len(present)} back; "
            "export the model with past keys and values"
        )
    continued = {_label(node.name): node for node in present}
    labels = [_label(node.name) for node in past]
    if len(continued) == len(present) and set(labels) == set(continued):
        return [(node, continued[label]) for node, label in zip(past, labels, strict=True)]
    return list(zip(past, present, strict=True))


def _label(name: str) -> tuple[str, ...]:
    kind = re.findall(r"key|value|(?<![a-z])[kv](?![a-z])", name.lower().replace("key_values", ""))
    return (*re.findall(r"\d+", name), *[found[0] for found in kind])


def _slot(past: NodeArg, present: NodeArg) -> CacheSlot:
    shape = list(past.shape)
    # The batch may be left open too; the length is the last dimension that is.
    shape[0] = 1
    open_axes = [axis for axis, size in enumerate(shape) if not isinstance(size, int)]
    if len(open_axes) != 1:
        raise _unsupported("cache input", past, "exactly its length must be open")
    if past.type != present.type or len(present.shape) != len(shape):
        raise _unsupported("cache output", present, f"it does not continue input {past.name!r}")
    axis = open_axes[0]
    return CacheSlot(
        past=past.name,
        present=present.name,
        dtype=_DTYPES[past.type],
        before=tuple(shape[:axis]),
        after=tuple(shape[axis + 1 :]),
    )
