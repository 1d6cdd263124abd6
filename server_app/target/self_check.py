"""A pass over the paged cache compared with the stock model, once at loading."""

from __future__ import annotations

from typing import Any

import torch

from edge_sdk.errors import CosdError, UnsupportedModel
from server_app.target.attention import ATTENTION
from server_app.target.model import Chunk, TargetModel

# Mean difference of two logits over their spread. Rounding gives about 1e-6 in 32 bits and up
# to 0.05 in 16 bits; a wrong mask or position gives about 1.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_TOLERANCE_16_BIT = 0.15


@torch.inference_mode()
def check_against_stock(target: TargetModel, model: Any) -> None:
    """Compare a few rows of packed, split and rolled back sequences with the model's own
    attention, so that an unknown architecture cannot be wrong in silence. Texts are short:
    sliding windows are compared with the configuration instead.

    Args:
        target: runs `model` over a paged cache.
        model: the transformers model.

    Raises:
        UnsupportedModel: the logits differ by more than rounding.
    """
    name = type(model).__name__
    try:
        pairs = _rows(target, model)
    except CosdError:
        raise
    except Exception as error:  # a model's own code raises whatever it raises
        raise UnsupportedModel(
            f"{name} does not run: {type(error).__name__}: {str(error)[:300]}"
        ) from error
    for mine, stock in pairs:
        _compare(mine, stock, target.dtype, name)


def _rows(target: TargetModel, model: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Logits [rows, V] over the cache and by the stock model, in float32, of two texts."""
    draw = torch.Generator().manual_seed(0)
    width = len(target.vocabulary)
    texts = [torch.randint(width, (count,), generator=draw).tolist() for count in (12, 5)]
    first, second = target.new_sequence(), target.new_sequence()
    try:
        target.forward([Chunk(first, texts[0][:7], 0)])
        target.forward([Chunk(first, texts[1], 1)])
        target.rollback(first, 7)
        both = target.forward([Chunk(first, texts[0][7:], 3), Chunk(second, texts[1], 2)])
        ours = [rows.clone() for rows in both]  # the stock model's pass may write over them
    finally:
        target.release(first)
        target.release(second)
    pairs = []
    model.set_attn_implementation("eager")
    try:
        for text, mine in zip(texts, ours, strict=True):
            ids = torch.tensor([text], device=target.device)
            rows = torch.arange(len(text) - len(mine), len(text), device=target.device)
            stock = model(input_ids=ids, use_cache=False, logits_to_keep=rows).logits[0]
            # Copies, since the next pass may write over these.
            pairs.append((mine.float(), stock.float().clone()))
    finally:
        model.set_attn_implementation(ATTENTION)
    return pairs


def _compare(mine: torch.Tensor, stock: torch.Tensor, dtype: torch.dtype, name: str) -> None:
    off = float((mine - stock).abs().mean() / stock.std().clamp_min(1e-6))
    # NOTE: written so that NaN fails too.
    if not off <= _TOLERANCE.get(dtype, _TOLERANCE_16_BIT):
        raise UnsupportedModel(
            f"{name} gives other logits over the paged cache than by itself (mean difference "
            f"{off:.2g} of their spread), so it cannot be a target"
        )
