"""A Hugging Face folder, looked at before anything heavy is loaded."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_sdk.draft.manifest import file_sha256
from edge_sdk.errors import ModelFolderInvalid, TokenizerUnsupported, UnsupportedModel

_MAX_HEADER = 100 << 20  # the limit of the safetensors format


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What `config.json` and the files of a folder say.

    Attributes:
        folder: with config.json, tokenizer.json and weights.
        architecture: e.g. `LlamaForCausalLM`.
        context: most tokens a text can hold.
        logits_width: rows of the output embedding, padding included.
        weights: the files that hold the weights, in order.
    """

    folder: Path
    architecture: str
    context: int
    logits_width: int
    weights: tuple[Path, ...]

    def weights_sha256(self) -> str:
        """SHA-256 (hex) of the weight file, or of the digests of several."""
        digests = [file_sha256(path) for path in self.weights]
        if len(digests) == 1:
            return digests[0]
        return hashlib.sha256("".join(digests).encode()).hexdigest()


def read_checkpoint(folder: Path) -> Checkpoint:
    """Check that a folder is a causal language model that can be exported.

    Raises:
        ModelFolderInvalid: no folder, or a file is missing, truncated or not what it should be.
        TokenizerUnsupported: no `tokenizer.json`.
        UnsupportedModel: not a causal language model, or an unknown architecture.
    """
    if not folder.is_dir():
        raise ModelFolderInvalid(f"model folder {folder} does not exist; check the path")
    config = _read_json(folder / "config.json")
    architecture = _architecture(config, folder)
    if not (folder / "tokenizer.json").is_file():
        raise TokenizerUnsupported(
            f"{folder} has no tokenizer.json; load its tokenizer with transformers' AutoTokenizer "
            "and save_pretrained it into the folder, which writes one"
        )
    _read_json(folder / "tokenizer.json")
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else config
    return Checkpoint(
        folder=folder,
        architecture=architecture,
        context=_number(inner, "max_position_embeddings", "n_positions", folder=folder),
        logits_width=_number(inner, "vocab_size", folder=folder),
        weights=_weights(folder),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ModelFolderInvalid(
            f"{path.parent} has no {path.name}; give the folder of a Hugging Face checkpoint, "
            "a GGUF file or the name of a model"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFolderInvalid(
            f"{path} is not readable JSON ({error}); fetch the model again"
        ) from error
    if not isinstance(document, dict):
        raise ModelFolderInvalid(f"{path} is not a JSON object; fetch the model again")
    return document


def _architecture(config: dict[str, Any], folder: Path) -> str:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind = config.get("model_type")
    if config.get("is_encoder_decoder"):
        raise UnsupportedModel(
            f"{folder} is an encoder-decoder model ({kind}); only decoder-only language models "
            "can draft, choose one of those"
        )
    names = config.get("architectures")
    table: dict[str, Any] = dict(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    known = table.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise UnsupportedModel(
            f"{folder} is of model type {kind!r}, which the installed transformers does not know "
            "as a causal language model; choose another model"
        )
    if isinstance(names, list) and names and isinstance(names[0], str):
        if not names[0].endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
            raise UnsupportedModel(
                f"{folder} holds a {names[0]}, which does not write text; choose a causal "
                "language model (...ForCausalLM)"
            )
        return names[0]
    return known if isinstance(known, str) else str(known[0])


def _number(config: dict[str, Any], *names: str, folder: Path) -> int:
    for name in names:
        value = config.get(name)
        if type(value) is int and value > 0:
            return value
    raise ModelFolderInvalid(
        f"{folder / 'config.json'} has no whole number {names[0]!r}; fetch the model again"
    )


def _weights(folder: Path) -> tuple[Path, ...]:
    for single in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{single}.index.json"
        if (folder / single).is_file():
            found: tuple[Path, ...] = (folder / single,)
        elif index.is_file():
            found = _shards(index)
        else:
            continue
        for path in found:
            _check_weights(path)
        return found
    raise ModelFolderInvalid(
        f"{folder} has no weights (model.safetensors or pytorch_model.bin); fetch the model again"
    )


def _shards(index: Path) -> tuple[Path, ...]:
    table = _read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise ModelFolderInvalid(f"{index} has no weight_map; fetch the model again")
    names = sorted({str(name) for name in table.values()})
    return tuple(index.parent / Path(name).name for name in names)


def _check_weights(path: Path) -> None:
    """Compare the size of a safetensors file with what its header promises."""
    try:
        size = path.stat().st_size
        if path.suffix != ".safetensors":
            if size == 0:
                raise ValueError("it is empty")
            return
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, _MAX_HEADER):
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
        if 8 + length + max(ends) != size:
            raise ValueError(f"it has {size} bytes instead of {8 + length + max(ends)}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ModelFolderInvalid(
            f"weights {path} are missing or truncated ({error}); fetch the model again"
        ) from error
