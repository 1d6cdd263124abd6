"""What a model of the Llama family computes, as far as a fused graph must know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_sdk.errors import UnsupportedModel

ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)
# Scalings whose angles do not depend on the length of the text.
_STATIC_ROPE = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True, eq=False)
class DecoderShape:
    """Sizes and constants of one model.

    Attributes:
        layers: decoder layers.
        heads: query heads.
        key_heads: key and value heads.
        head: width of a head.
        inner: width of the gated layer.
        vocabulary: V_D.
        epsilon: of every norm.
        windows: tokens that attention sees in each layer, -1 for all.
        head_norms: whether queries and keys are normalised head by head (Qwen 3).
        tied: whether the output embedding is the input embedding.
        cosines: float32 [context, head / 2].
        sines: float32 [context, head / 2].
    """

    layers: int
    heads: int
    key_heads: int
    head: int
    inner: int
    vocabulary: int
    epsilon: float
    windows: tuple[int, ...]
    head_norms: bool
    tied: bool
    cosines: NDArray[np.float32]
    sines: NDArray[np.float32]


def read_shape(model: Any, *, context: int) -> DecoderShape:
    """Shape of a loaded transformers model.

    Args:
        model: one of `ARCHITECTURES`.
        context: positions to prepare.

    Raises:
        UnsupportedModel: it does something that a fused graph would do differently.
    """
    config = model.config
    if config.hidden_act != "silu":
        raise _unsupported(f"an activation {config.hidden_act!r} in its gated layers")
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cosines, sines = _rotations(model, head, context)
    embedding = model.get_input_embeddings().weight
    return DecoderShape(
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head=head,
        inner=config.intermediate_size,
        vocabulary=config.vocab_size,
        epsilon=config.rms_norm_eps,
        windows=_windows(config),
        head_norms=type(model).__name__ == "Qwen3ForCausalLM",
        tied=model.get_output_embeddings().weight.data_ptr() == embedding.data_ptr(),
        cosines=cosines,
        sines=sines,
    )


def _rotations(
    model: Any, head: int, context: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosines and sines of every position, from the model's own rotary embedding."""
    import torch

    rotary = model.model.rotary_emb
    if rotary.rope_type not in _STATIC_ROPE:
        raise _unsupported(f"rotary positions of type {rotary.rope_type!r}")
    with torch.no_grad():
        like = torch.zeros(1, dtype=torch.float32)
        cosines, sines = rotary(like, torch.arange(context)[None])
    if cosines.shape[-1] != head:
        raise _unsupported(f"rotary positions on {cosines.shape[-1]} of {head} dimensions")
    # transformers repeats the angles for both halves of a head.
    half = head // 2
    return cosines[0, :, :half].numpy().copy(), sines[0, :, :half].numpy().copy()


def _windows(config: Any) -> tuple[int, ...]:
    window = int(getattr(config, "sliding_window", None) or -1)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return (window,) * int(config.num_hidden_layers)
    table = {"full_attention": -1, "sliding_attention": window}
    unknown = set(kinds) - set(table)
    if unknown:
        raise _unsupported(f"attention of type {', '.join(sorted(unknown))}")
    windows: tuple[int, ...] = tuple(table[kind] for kind in kinds)
    return windows


def _unsupported(what: str) -> UnsupportedModel:
    return UnsupportedModel(f"the model has {what}, which the fused export does not offer")
