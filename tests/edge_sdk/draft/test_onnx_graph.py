from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from edge_sdk.draft.onnx_graph import DecoderGraph
from edge_sdk.errors import UnsupportedModel


@dataclass
class Node:
    name: str
    type: str
    shape: Sequence[Any]


IDS = Node("input_ids", "tensor(int64)", ["batch", "n"])
LOGITS = Node("logits", "tensor(float)", ["batch", "n", 50])


def cache(name: str, *, heads: Any = 2, kind: str = "tensor(float)") -> Node:
    return Node(name, kind, ["batch", heads, "length", 8])


def pairs(past: Sequence[str], present: Sequence[str]) -> dict[str, str]:
    graph = DecoderGraph.read([IDS, *map(cache, past)], [LOGITS, *map(cache, present)])
    return {slot.past: slot.present for slot in graph.cache}


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.{}.{}", "present.{}.{}"),
        ("past_key_values.{}.{}", "present_key_values.{}.{}"),
        ("past_{}.{}", "present_{}.{}"),
        ("past_key_values_{}_{}", "present_key_values_{}_{}"),
        ("{1}_cache_{0}_in", "{1}_cache_{0}_out"),
    ],
)
def test_caches_pair_up_by_layer_and_kind(past: str, present: str) -> None:
    keys = [(layer, kind) for layer in (0, 1, 10) for kind in ("key", "value")]
    shuffled = [keys[i] for i in (3, 0, 5, 2, 4, 1)]
    found = pairs([past.format(*key) for key in keys], [present.format(*key) for key in shuffled])
    assert found == {past.format(*key): present.format(*key) for key in keys}


def test_short_kinds_pair_up_too() -> None:
    found = pairs(["k_0", "v_0"], ["v_0_out", "k_0_out"])
    assert found == {"k_0": "k_0_out", "v_0": "v_0_out"}


def test_names_that_say_nothing_pair_up_by_order() -> None:
    assert pairs(["a", "b"], ["c", "d"]) == {"a": "c", "b": "d"}


def test_what_is_read() -> None:
    mask = Node("attention_mask", "tensor(int32)", ["batch", "total"])
    half = (
        cache("past.0.key", kind="tensor(float16)"),
        cache("present.0.key", kind="tensor(float16)"),
    )
    graph = DecoderGraph.read([IDS, mask, half[0]], [half[1], LOGITS])
    assert graph.mask is not None
    assert graph.mask.dtype is np.int32
    assert graph.positions is None
    assert graph.width == 50
    assert graph.every_row
    (slot,) = graph.cache
    assert slot.dtype is np.float16
    assert slot.shape(5) == [1, 2, 5, 8]
    assert (slot.outer, slot.inner) == (2, 8)
    last = Node("logits", "tensor(float)", [1, 1, "vocabulary"])
    other = DecoderGraph.read([IDS, half[0]], [last, half[1]])
    assert not other.every_row
    assert other.width is None


LAST = Node("seqlens_k", "tensor(int32)", [1])
TOTAL = Node("total_sequence_length", "tensor(int32)", [])


def test_graphs_on_shared_buffers_are_told_by_their_lengths() -> None:
    graph = DecoderGraph.read(
        [IDS, LAST, TOTAL, cache("past.0.key")], [LOGITS, cache("present.0.key")]
    )
    assert graph.lengths is not None
    assert (graph.lengths.last.name, graph.lengths.last.dtype) == ("seqlens_k", np.int32)
    assert graph.lengths.total.name == "total_sequence_length"
    plain = DecoderGraph.read([IDS, cache("past.0.key")], [LOGITS, cache("present.0.key")])
    assert plain.lengths is None


@pytest.mark.parametrize(
    ("inputs", "outputs", "word"),
    [
        ([IDS], [LOGITS], "cache"),
        ([IDS, cache("p0"), cache("p1")], [LOGITS, cache("q0")], "2 cache inputs and gives 1"),
        ([cache("p")], [LOGITS, cache("q")], "input_ids"),
        ([IDS, cache("p")], [cache("q")], "logits"),
        ([IDS, cache("p", heads="heads")], [LOGITS, cache("q")], "length must be open"),
        ([IDS, cache("p")], [LOGITS, cache("q", kind="tensor(float16)")], "does not continue"),
        ([IDS, LAST, cache("p")], [LOGITS, cache("q")], "without the other"),
        ([IDS, TOTAL, cache("p")], [LOGITS, cache("q")], "without the other"),
        ([IDS, Node("seqlens_k", "tensor(int32)", [1, 1])], [LOGITS], "seqlens_k.*rank 1"),
        ([IDS, Node("beams", "tensor(int32)", [1])], [LOGITS], "beams"),
        ([IDS, Node("attention_mask", "tensor(bool)", [1, "n"])], [LOGITS], "attention_mask"),
        ([IDS, Node("x", "tensor(bfloat16)", [1, 2, "n", 8])], [LOGITS], "bfloat16"),
    ],
)
def test_graphs_that_cannot_be_run(inputs: list[Node], outputs: list[Node], word: str) -> None:
    with pytest.raises(UnsupportedModel, match=word):
        DecoderGraph.read(inputs, outputs)
