from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from edge_sdk.errors import InvalidRequest, UnsupportedModel
from server_app.target import packed_linear
from server_app.target.hugging_face import HuggingFaceTarget
from server_app.target.model import Chunk
from server_app.target.packed_linear import PackedLinear, check_packable, pack_linear_layers

CPU = torch.device("cpu")


def packable() -> bool:
    try:
        check_packable(CPU, torch.bfloat16)
    except InvalidRequest:
        return False
    return True


needs_bfloat16 = pytest.mark.skipif(not packable(), reason="this CPU has no products in bfloat16")


def rows_of(target: HuggingFaceTarget) -> torch.Tensor:
    sequence, other = target.new_sequence(), target.new_sequence()
    target.forward([Chunk(sequence, list(range(40)), 0)])
    logits = target.forward([Chunk(sequence, [1, 2, 3], 3), Chunk(other, [7] * 9, 1)])
    return torch.cat(logits).float()


@needs_bfloat16
@pytest.mark.parametrize("family", ["qwen2", "gemma3"])  # with biases; with a tied output layer
def test_a_packed_model_gives_the_same_logits(
    tiny_folder: Callable[[str], Path], family: str
) -> None:
    said: list[str] = []
    options: dict[str, Any] = {"device": "cpu", "dtype": "bfloat16", "progress": said.append}
    plain = HuggingFaceTarget.load(tiny_folder(family), **options)
    packed = HuggingFaceTarget.load(tiny_folder(family), pack_weights=True, **options)
    assert any("packing weights" in line for line in said)
    expected, mine = rows_of(plain), rows_of(packed)
    assert float((mine - expected).abs().mean() / expected.std()) <= 0.02
    kinds = {type(module) for module in packed._model.modules()}
    assert PackedLinear in kinds
    assert torch.nn.Linear not in kinds


@needs_bfloat16
def test_only_weights_that_others_use_are_kept() -> None:
    model: Any = torch.nn.Module()
    model.embedding = torch.nn.Embedding(50, 32, dtype=torch.bfloat16)
    model.inner = torch.nn.Linear(32, 32, dtype=torch.bfloat16)
    model.head = torch.nn.Linear(32, 50, bias=False, dtype=torch.bfloat16)
    model.head.weight = model.embedding.weight
    assert pack_linear_layers(model) == 50 * 32 * 2
    assert model.head.weight is model.embedding.weight
    assert model.inner.weight is None
    out = model.head(torch.zeros((1, 0, 32), dtype=torch.bfloat16))
    assert out.shape == (1, 0, 50)


@needs_bfloat16
def test_other_products_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_linear, "_TOLERANCE", -1.0)
    with pytest.raises(UnsupportedModel, match="other products"):
        PackedLinear(torch.nn.Linear(8, 8, dtype=torch.bfloat16), keep=False)


@pytest.mark.parametrize(
    ("device", "dtype"), [("cpu", torch.float32), ("cuda", torch.bfloat16), ("cpu", torch.int8)]
)
def test_what_cannot_be_packed_is_said(device: str, dtype: torch.dtype) -> None:
    with pytest.raises(InvalidRequest, match="load the model without packing"):
        check_packable(torch.device(device), dtype)
