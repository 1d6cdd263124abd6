"""A Hugging Face folder, looked at before anything heavy is loaded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_sdk.draft.manifest import file_sha256
from edge_sdk.errors import ModelFolderInvalid, TokenizerUnsupported, UnsupportedModel
from export.onnx_graph import check_traced, count_parameters, data_files, find_traced
from export.supported import supported_sentence
from export.weight_files import WeightFiles, has_weights, read_weight_files

_SETTINGS = ("*.json", "*.jinja", "*.py")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What `config.json` and the files of a folder say.

    Attributes:
        folder: with config.json, tokenizer.json and weights.
        architecture: e.g. `LlamaForCausalLM`.
        model_type: e.g. `llama`.
        context: most tokens a text can hold.
        logits_width: rows of the output embedding, padding included.
        weights: the files that hold the weights, in order.
        parameters: how many weights there are.
        graph: the ONNX graph, where an exporter has been at work already and left no weights
            that transformers reads.
    """

    folder: Path
    architecture: str
    model_type: str
    context: int
    logits_width: int
    weights: tuple[Path, ...]
    parameters: int
    graph: Path | None = None

    @property
    def fp32_bytes(self) -> int:
        """Bytes of the weights in fp32."""
        return 4 * self.parameters

    def weights_sha256(self) -> str:
        """SHA-256 (hex) of the weight file, or of the digests of several."""
        digests = [file_sha256(path) for path in self.weights]
        if len(digests) == 1:
            return digests[0]
        return hashlib.sha256("".join(digests).encode()).hexdigest()

    def settings_sha256(self) -> str:
        """SHA-256 (hex) over configuration, tokenizer and code: what is no weight."""
        weights = {path.name for path in self.weights}
        names = {p.name for pattern in _SETTINGS for p in self.folder.glob(pattern)} - weights
        entries = [f"{name} {file_sha256(self.folder / name)}" for name in sorted(names)]
        return hashlib.sha256("\n".join(entries).encode()).hexdigest()


def read_checkpoint(folder: Path, *, trust_remote_code: bool = False) -> Checkpoint:
    """Check that a folder is a causal language model that can be exported.

    Args:
        folder: with config.json, tokenizer.json and weights.
        trust_remote_code: Python code that comes with the model may run.

    Raises:
        ModelFolderInvalid: no folder, or a file is missing, truncated or not what it should be.
        TokenizerUnsupported: no `tokenizer.json`.
        UnsupportedModel: not a causal language model, an unknown architecture, or one that
            comes as code which is not trusted.
    """
    if not folder.is_dir():
        raise ModelFolderInvalid(f"model folder {folder} does not exist; check the path")
    config = read_object(folder / "config.json")
    architecture = _architecture(config, folder, trust_remote_code)
    if not (folder / "tokenizer.json").is_file():
        raise TokenizerUnsupported(
            f"{folder} has no tokenizer.json; load its tokenizer with transformers' AutoTokenizer "
            "and save_pretrained it into the folder, which writes one"
        )
    read_object(folder / "tokenizer.json")
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else config
    graph = None if has_weights(folder) else find_traced(folder)
    files = read_weight_files(folder) if graph is None else _traced_files(graph)
    return Checkpoint(
        folder=folder,
        architecture=architecture,
        model_type=str(config["model_type"]),
        context=_number(inner, "max_position_embeddings", "n_positions", folder=folder),
        logits_width=_number(inner, "vocab_size", folder=folder),
        weights=files.paths,
        parameters=_parameters(files, config),
        graph=graph,
    )


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object of a model folder.

    Raises:
        ModelFolderInvalid: there is none.
    """
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


def _architecture(config: dict[str, Any], folder: Path, trust_remote_code: bool) -> str:
    kind = config.get("model_type")
    if config.get("is_encoder_decoder"):
        raise UnsupportedModel(
            f"{folder} is an encoder-decoder model ({kind}); only decoder-only language models "
            "can draft, choose one of those"
        )
    # Only now: it takes seconds to import.
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    table: dict[str, Any] = dict(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    known = table.get(kind) if isinstance(kind, str) else None
    names = config.get("architectures")
    named = isinstance(names, list) and bool(names) and isinstance(names[0], str)
    own = _own_code(config)
    if own is not None and not trust_remote_code:
        # The class that transformers has under that name need not compute the same.
        instead = f"; without auto_map in its config.json it is read as {known}" if known else ""
        raise UnsupportedModel(
            f"{folder} comes with Python code of its own ({own}), which would run with your "
            f"rights; read it, then give --trust-remote-code (trust_remote_code=True){instead}"
        )
    if known is None and not (own is not None and isinstance(kind, str) and named):
        label = str(names[0]) if isinstance(names, list) and named else "no architecture"
        raise UnsupportedModel(
            f"{folder} is of model type {kind!r} ({label}), which the installed transformers does "
            f"not know as a causal language model; {supported_sentence()}"
        )
    if isinstance(names, list) and named:
        if not names[0].endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
            raise UnsupportedModel(
                f"{folder} holds a {names[0]}, which does not write text; choose a causal "
                "language model (...ForCausalLM)"
            )
        return str(names[0])
    return known if isinstance(known, str) else str((known or [kind])[0])


def _own_code(config: dict[str, Any]) -> str | None:
    """Where the class of the model is to be found, if it comes with the model."""
    classes = config.get("auto_map")
    own = classes.get("AutoModelForCausalLM") if isinstance(classes, dict) else None
    return own if isinstance(own, str) else None


def _traced_files(graph: Path) -> WeightFiles:
    model = check_traced(graph)
    return WeightFiles((graph, *data_files(graph, model)), count_parameters(model))


def _parameters(files: WeightFiles, config: dict[str, Any]) -> int:
    if files.parameters is not None:
        return files.parameters
    stored = str(config.get("dtype") or config.get("torch_dtype"))
    total = sum(path.stat().st_size for path in files.paths)
    return total // (4 if stored == "float32" else 2)


def _number(config: dict[str, Any], *names: str, folder: Path) -> int:
    for name in names:
        value = config.get(name)
        if type(value) is int and value > 0:
            return value
    raise ModelFolderInvalid(
        f"{folder / 'config.json'} has no whole number {names[0]!r}; fetch the model again"
    )
