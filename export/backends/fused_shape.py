"""What a model of the Llama or Gemma family computes, as far as a fused graph must know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from edge_sdk.errors import UnsupportedModel
from export.backends.rotation import Rotation, read_rotation


@dataclass(frozen=True, slots=True)
class Family:
    """In what an architecture differs from Llama.

    Attributes:
        head_norms: queries and keys are normalised head by head.
        sandwich: attention and gated layers are normalised before and after.
        offset: added to the weights of every norm.
        scaled: embeddings are multiplied by the root of their width.
        own_scale: attention is scaled by `query_pre_attn_scalar`, not by the width of a head.
    """

    head_norms: bool = False
    sandwich: bool = False
    offset: float = 0.0
    scaled: bool = False
    own_scale: bool = False


FAMILIES: Final = {
    "LlamaForCausalLM": Family(),
    "MistralForCausalLM": Family(),
    "Qwen2ForCausalLM": Family(),
    "Qwen3ForCausalLM": Family(head_norms=True),
    "GemmaForCausalLM": Family(offset=1.0, scaled=True),
    "Gemma2ForCausalLM": Family(sandwich=True, offset=1.0, scaled=True, own_scale=True),
    "Gemma3ForCausalLM": Family(
        head_norms=True, sandwich=True, offset=1.0, scaled=True, own_scale=True
    ),
}
ARCHITECTURES: Final = tuple(FAMILIES)
ACTIVATIONS: Final = ("silu", "gelu_pytorch_tanh", "gelu")


@dataclass(frozen=True, slots=True, eq=False)
class DecoderShape:
    """Sizes and constants of one model.

    Attributes:
        family: the kind of model.
        layers: decoder layers.
        heads: query heads.
        key_heads: key and value heads.
        head: width of a head.
        vocabulary: V_D.
        context: positions to prepare.
        epsilon: of every norm.
        scale: of attention scores.
        activation: of the gated layers, one of `ACTIVATIONS`.
        windows: tokens that attention sees in each layer, -1 for all.
        rotations: kinds of rotary positions.
        rotation_of: the kind of each layer.
        score_cap: attention scores s become cap * tanh(s / cap); 0 for none.
        logit_cap: the same for logits.
        embedding_scale: factor of embeddings.
        tied: whether the output embedding is the input embedding.
    """

    family: Family
    layers: int
    heads: int
    key_heads: int
    head: int
    vocabulary: int
    context: int
    epsilon: float
    scale: float
    activation: str
    windows: tuple[int, ...]
    rotations: tuple[Rotation, ...]
    rotation_of: tuple[int, ...]
    score_cap: float
    logit_cap: float
    embedding_scale: float
    tied: bool


def read_shape(model: Any, *, context: int) -> DecoderShape:
    """Shape of a loaded transformers model.

    Args:
        model: one of `ARCHITECTURES`.
        context: positions to prepare.

    Raises:
        UnsupportedModel: it does something that a fused graph would do differently.
    """
    config, family = model.config, FAMILIES.get(type(model).__name__)
    if family is None:
        raise _unsupported(f"a class of its own, {type(model).__name__}")
    activation = getattr(config, "hidden_activation", None) or config.hidden_act
    if activation not in ACTIVATIONS:
        raise _unsupported(f"an activation {activation!r} in its gated layers")
    if getattr(config, "use_bidirectional_attention", False):
        raise _unsupported("attention to later tokens")
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    windows = _windows(config)
    rotations, rotation_of = _rotations(model, windows, head, context)
    embedding = model.get_input_embeddings().weight
    return DecoderShape(
        family=family,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head=head,
        vocabulary=config.vocab_size,
        context=context,
        epsilon=config.rms_norm_eps,
        scale=(config.query_pre_attn_scalar if family.own_scale else head) ** -0.5,
        activation=activation,
        windows=windows,
        rotations=rotations,
        rotation_of=rotation_of,
        score_cap=float(getattr(config, "attn_logit_softcapping", None) or 0.0),
        logit_cap=float(getattr(config, "final_logit_softcapping", None) or 0.0),
        embedding_scale=config.hidden_size**0.5 if family.scaled else 1.0,
        tied=model.get_output_embeddings().weight.data_ptr() == embedding.data_ptr(),
    )


def _rotations(
    model: Any, windows: tuple[int, ...], head: int, context: int
) -> tuple[tuple[Rotation, ...], tuple[int, ...]]:
    """The kinds of rotary positions, and the kind of each layer."""
    decoder = model.model
    if isinstance(decoder.rotary_emb.rope_type, dict):  # Gemma 3 in transformers 5
        layers = list(model.config.layer_types)
        kinds = sorted(set(layers))
        rotations = tuple(
            read_rotation(decoder.rotary_emb, head=head, context=context, kind=kind)
            for kind in kinds
        )
        return rotations, tuple(kinds.index(layer) for layer in layers)
    rotation = read_rotation(decoder.rotary_emb, head=head, context=context)
    local = getattr(decoder, "rotary_emb_local", None)
    if local is None:
        return (rotation,), (0,) * len(windows)
    # Gemma 3 in transformers 4 turns layers with a window by other angles.
    near = read_rotation(local, head=head, context=context)
    return (rotation, near), tuple(int(window > 0) for window in windows)


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
