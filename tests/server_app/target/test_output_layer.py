"""Logits that are written into memory that stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from server_app.target import output_layer
from server_app.target.hugging_face import HuggingFaceTarget
from server_app.target.model import Chunk
from server_app.target.output_layer import OutputLayer, keep_logits


class Model(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.head: nn.Module = nn.Linear(8, size, bias=False)

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def set_output_embeddings(self, head: nn.Module) -> None:
        self.head = head


@pytest.mark.parametrize("bias", [False, True])
@torch.inference_mode()
def test_the_logits_are_those_of_the_layer(bias: bool) -> None:
    linear = nn.Linear(8, 100, bias=bias)
    kept = OutputLayer(linear)
    for shape in ((1, 3), (1, 1), (7,), (2, 5)):
        hidden = torch.randn(*shape, 8)
        torch.testing.assert_close(kept(hidden), linear(hidden))


@torch.inference_mode()
def test_the_memory_stays_and_grows_with_the_batch() -> None:
    kept = OutputLayer(nn.Linear(8, 100, bias=False))
    first = kept(torch.randn(4, 8))
    address = first.data_ptr()
    assert kept(torch.randn(3, 8)).data_ptr() == address
    assert kept.rows == 4
    kept(torch.randn(5, 8))
    assert kept.rows == 8


def test_only_large_and_plain_layers_are_replaced() -> None:
    large, small = Model(40_000), Model(100)
    for model in (large, small):
        keep_logits(model)
    assert type(large.head) is OutputLayer
    assert type(small.head) is nn.Linear
    keep_logits(large)
    assert type(large.head) is OutputLayer


def test_a_model_loads_and_runs_over_it_in_float32(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = HuggingFaceTarget.load(tiny_folder("llama"), device="cpu", dtype="float32")
    monkeypatch.setattr(output_layer, "_LARGE", 1)
    kept = HuggingFaceTarget.load(tiny_folder("llama"), device="cpu", dtype="float32")
    rows = []
    for target in (plain, kept):
        sequence = target.new_sequence()
        (logits,) = target.forward([Chunk(sequence, [3, 1, 4, 1, 5], 3)])
        rows.append(logits.clone())
    torch.testing.assert_close(rows[0], rows[1])
