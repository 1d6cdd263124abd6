"""A transformers model from its folder, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge_sdk.errors import ModelFolderInvalid, UnsupportedModel


def load_config(source: Path, *, trust_remote_code: bool) -> Any:
    """The configuration of a model folder.

    Raises:
        ModelFolderInvalid: there is none that can be read.
        UnsupportedModel: an architecture that the installed transformers does not know, or
            weights that are quantised already.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            str(source), local_files_only=True, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError, KeyError) as error:
        if "model type" in str(error) or "custom code" in str(error):
            raise UnsupportedModel(
                f"{source} is of an architecture that this transformers does not know "
                f"({first_line(error)}); choose another model"
            ) from error
        raise ModelFolderInvalid(
            f"{source} has no usable config.json ({first_line(error)}); fetch the model again"
        ) from error
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedModel(
            f"the weights of {source} are quantised already; export the original model"
        )
    return config


def load_model(source: Path, config: Any, *, trust_remote_code: bool, attention: str | None) -> Any:
    """The causal language model of a folder in fp32.

    Args:
        source: Hugging Face folder.
        config: its configuration.
        trust_remote_code: Python code that comes with the model may run.
        attention: transformers' name of an implementation of attention; None: its default.

    Raises:
        ModelFolderInvalid: the weights cannot be read, or are not those of the configuration.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(source),
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=trust_remote_code,
            attn_implementation=attention,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise ModelFolderInvalid(
            f"{source} is not a readable model ({first_line(error)}); fetch the model again"
        ) from error
    model, loading = loaded
    # transformers makes up what a file lacks, and leaves out what it does not know.
    for kind, verb in (("missing_keys", "lack"), ("unexpected_keys", "have besides the model")):
        if names := sorted(loading[kind]):
            raise ModelFolderInvalid(
                f"the weights of {source} {verb} {len(names)} tensors ({', '.join(names[:3])}), "
                "so weights and config.json are not of the same model; fetch it again"
            )
    return model.eval()


def first_line(error: BaseException) -> str:
    """The beginning of an error's text, for a sentence."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
