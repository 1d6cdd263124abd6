"""Opening a Hugging Face checkpoint folder as a causal language model."""

from __future__ import annotations

import inspect
import json
import re
import struct
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from edge_sdk.errors import ModelFolderInvalid, UnsupportedModel
from server_app.target.attention import register_attention
from server_app.target.precision import Precision

_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})

_LAYER = re.compile(r"\.\d+\.(?!.*inv_freq)")


def read_config(folder: Path) -> PretrainedConfig:
    """Configuration of a checkpoint that this server can run.

    Raises:
        ModelFolderInvalid: no folder, no `config.json`, or one that is not valid.
        UnsupportedModel: not a decoder-only language model that transformers knows.
    """
    if not folder.is_dir():
        raise ModelFolderInvalid(f"{folder} is not a folder; give a Hugging Face model folder")
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise ModelFolderInvalid(
            f"{folder} has no config.json; give a Hugging Face model folder"
        ) from error
    except (OSError, ValueError) as error:
        raise ModelFolderInvalid(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ModelFolderInvalid(f"{path} is not a JSON object")
    name = architecture_name(raw)
    if raw.get("is_encoder_decoder"):
        raise UnsupportedModel(
            f"{name} is an encoder-decoder model; the target must be decoder-only"
        )
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (ValueError, KeyError) as error:
        raise UnsupportedModel(
            f"the installed transformers cannot read the configuration of {name} in {path}: "
            f"{_first_line(error)}"
        ) from error
    except (OSError, TypeError) as error:
        raise ModelFolderInvalid(f"{path} is not a valid configuration: {error}") from error
    if config.is_encoder_decoder:
        raise UnsupportedModel(
            f"{name} is an encoder-decoder model; the target must be decoder-only"
        )
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise UnsupportedModel(f"{name} is not a causal language model of transformers")
    return config


def architecture_name(raw: dict[str, Any]) -> str:
    """Name of the architecture for messages, from `config.json`."""
    architectures = raw.get("architectures")
    if isinstance(architectures, list) and architectures:
        return str(architectures[0])
    return str(raw.get("model_type", "a model without a model_type"))


def layer_windows(config: PretrainedConfig) -> list[int | None]:
    """Sliding window of every attention layer in tokens, None where it sees everything.

    Raises:
        UnsupportedModel: layers of another kind (recurrent, chunked, linear attention).
    """
    config = config.get_text_config()
    layers = int(config.num_hidden_layers)
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        sliding = window is not None and getattr(config, "use_sliding_window", True)
        return [window if sliding else None] * layers
    strange = sorted(set(kinds) - _LAYER_TYPES)
    if strange:
        raise UnsupportedModel(
            f"{config.model_type} has layers of type {', '.join(strange)}; only full and "
            "sliding attention can be rolled back"
        )
    return [window if kind == "sliding_attention" else None for kind in kinds]


def check_weights(folder: Path) -> list[Path]:
    """The safetensors files of a folder, each checked to be as long as its header says.

    Raises:
        ModelFolderInvalid: a file is missing, truncated or not safetensors.
    """
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.is_file():
        files = [single]
    elif index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            files = [folder / name for name in names]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelFolderInvalid(f"{index} is not a valid weight index: {error}") from error
    else:
        raise ModelFolderInvalid(
            f"{folder} has no model.safetensors and no index of shards; "
            "convert the weights to safetensors"
        )
    for file in files:
        _check_safetensors(file)
    return files


def open_model(folder: Path, config: PretrainedConfig, precision: Precision) -> PreTrainedModel:
    """Load the weights, ready to run over the paged cache.

    Raises:
        ModelFolderInvalid: weights are missing, of another shape, or cannot be read.
        UnsupportedModel: the architecture does not run on this version of transformers.
    """
    model_class: Any = AutoModelForCausalLM._model_mapping[type(config)]
    name = getattr(model_class, "__name__", config.model_type)
    if not getattr(model_class, "_supports_attention_backend", False):
        raise UnsupportedModel(
            f"{name} does its attention itself; transformers' attention interface is needed"
        )
    if "logits_to_keep" not in inspect.signature(model_class.forward).parameters:
        raise UnsupportedModel(
            f"{name} cannot leave out rows of its output layer (it has no logits_to_keep)"
        )
    try:
        auto: Any = AutoModelForCausalLM  # its annotations leave out the loading info
        model, facts = auto.from_pretrained(
            folder,
            config=config,
            dtype=precision.dtype,
            attn_implementation=register_attention(),
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # transformers raises whatever its parts raise
        raise ModelFolderInvalid(
            f"the weights in {folder} do not load as {name}: {_first_line(error)}"
        ) from error
    missing = sorted(facts["missing_keys"])
    if missing:
        raise ModelFolderInvalid(
            f"the weights in {folder} lack {len(missing)} tensors of {name}, first {missing[0]}"
        )
    # A layer too many means that config and weights belong to different models.
    surplus = sorted(key for key in facts["unexpected_keys"] if _LAYER.search(key))
    if surplus:
        raise ModelFolderInvalid(
            f"the weights in {folder} have {len(surplus)} tensors that {name} of its config.json "
            f"does not, first {surplus[0]}; config and weights belong to different models"
        )
    opened: PreTrainedModel = model.eval().requires_grad_(False).to(precision.device)
    return opened


def logits_width(model: PreTrainedModel) -> int:
    """V: rows of the output layer."""
    anything: Any = model
    head = anything.get_output_embeddings()
    if head is None or not isinstance(getattr(head, "weight", None), torch.Tensor):
        raise UnsupportedModel(f"{type(model).__name__} has no output layer with a weight")
    return int(head.weight.shape[0])


def context_length(model: PreTrainedModel) -> int:
    """Most tokens of a text.

    Raises:
        UnsupportedModel: the configuration does not say.
    """
    config = model.config.get_text_config()
    context = getattr(config, "max_position_embeddings", None)
    if not isinstance(context, int) or context < 1:
        raise UnsupportedModel(
            f"{type(model).__name__} does not say how long a text may be "
            "(max_position_embeddings in config.json)"
        )
    return context


def _check_safetensors(file: Path) -> None:
    advice = "the file is truncated or was not written whole; copy or download it again"
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            if len(start) < 8:
                raise ModelFolderInvalid(f"{file} has {size} bytes: {advice}")
            (length,) = struct.unpack("<Q", start)
            if length > size - 8:
                raise ModelFolderInvalid(f"{file} is not a whole safetensors file: {advice}")
            header = json.loads(stream.read(length))
            ends = [
                int(entry["data_offsets"][1])
                for key, entry in header.items()
                if key != "__metadata__"
            ]
    except FileNotFoundError as error:
        raise ModelFolderInvalid(f"{file} is missing: copy or download the model again") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        if isinstance(error, ModelFolderInvalid):
            raise
        raise ModelFolderInvalid(f"{file} is not a safetensors file: {error}") from error
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise ModelFolderInvalid(f"{file} has {size} bytes instead of {expected}: {advice}")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
