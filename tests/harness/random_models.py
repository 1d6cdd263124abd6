"""Small random checkpoints, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WIDTH, CONTEXT = 288, 160
SIZES: dict[str, Any] = {
    "vocab_size": WIDTH,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
}


def write_model(folder: Path, family: str, **options: Any) -> Any:
    """Save a random causal language model with sizes of `SIZES`, `options` apart; norms and
    biases are random too, or nothing would test them.

    Args:
        family: what precedes `ForCausalLM` or `LMHeadModel` in the name of the class.
    """
    import torch
    import transformers

    name = f"{family}ForCausalLM"
    maker = getattr(transformers, name if hasattr(transformers, name) else f"{family}LMHeadModel")
    config = maker.config_class(**{**SIZES, **options})
    # transformers' other implementations of attention leave out what they do not offer.
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = maker(config).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            if values.dim() == 1:
                values.copy_(torch.rand_like(values) + (0.5 if "norm" in name else -0.5))
    model.save_pretrained(folder)
    return model
