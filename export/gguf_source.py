"""GGUF file -> Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from edge_sdk.errors import UnsupportedModel
from export.gguf_file import GgufFile
from export.gguf_tokenizer import GgufTokenizer, read_gguf_tokenizer
from export.progress import NoProgress, Progress, Stage

T = TypeVar("T")


def convert_gguf(path: Path, folder: Path, *, progress: Progress | None = None) -> None:
    """Write config, weights, tokenizer and generation config of a GGUF file into `folder`.

    The weights are saved in float32: GGUF's block formats (scale x integer + offset) are
    exact in neither bfloat16 nor float16, so a 16-bit file would round them once and give a
    float32 reader other numbers than a reader of the GGUF file has. A bfloat16 target rounds
    them when it loads them, as it would any checkpoint.

    Args:
        path: the GGUF file.
        folder: existing folder of this conversion alone.
        progress: told of each stage.

    Raises:
        ModelFolderInvalid: not a GGUF file, or a truncated one.
        TokenizerUnsupported: a tokenizer that cannot be read from GGUF.
        UnsupportedModel: an architecture that transformers does not read from GGUF.
    """
    progress = progress or NoProgress()
    with progress.stage("read the GGUF header"):
        file = GgufFile.read(path)
    with progress.stage("convert the tokenizer"):
        tokenizer = read_gguf_tokenizer(file)
        _write_tokenizer(tokenizer, file, folder)
    with progress.stage("de-quantise the weights", len(file.tensors)) as stage:
        model = _dequantised(file, stage)
    with progress.stage("save the weights"):
        _save(model, tokenizer, folder)


def _dequantised(file: GgufFile, stage: Stage) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    architecture = file.metadata.get("general.architecture")
    if any(tensor.name == "rope_freqs.weight" for tensor in file.tensors):
        # transformers drops this tensor in silence, and long texts would come out wrong.
        raise UnsupportedModel(
            f"{file.path} scales its rotary frequencies by a tensor, which transformers does not "
            "read from GGUF; use the Hugging Face folder of this model"
        )
    loader: Any = AutoModelForCausalLM
    try:
        with _reported_tensors(stage):
            model, loaded = loader.from_pretrained(
                file.path.parent,
                gguf_file=file.path.name,
                dtype=torch.float32,
                output_loading_info=True,
            )
    except (ValueError, KeyError, NotImplementedError) as error:
        raise UnsupportedModel(
            f"{file.path} is of architecture {architecture!r}, which transformers does not read "
            f"from GGUF ({error}); use the Hugging Face folder of this model"
        ) from error
    if loaded["missing_keys"]:
        raise UnsupportedModel(
            f"{file.path} lacks the weights {', '.join(sorted(loaded['missing_keys'])[:3])} of a "
            f"{architecture} model; use the Hugging Face folder of this model"
        )
    return model


@contextmanager
def _reported_tensors(stage: Stage) -> Iterator[None]:
    """Report transformers' walk over the tensors to `stage` instead of its own bar."""
    from transformers import modeling_gguf_pytorch_utils as reading

    def walk(tensors: Iterable[T], **_: object) -> Iterator[T]:
        for tensor in tensors:
            yield tensor
            stage.advance()

    # The bar is a global of that module, and there is no argument to turn it off.
    bar = vars(reading).get("tqdm")
    vars(reading)["tqdm"] = walk
    try:
        yield
    finally:
        vars(reading)["tqdm"] = bar


def _save(model: Any, tokenizer: GgufTokenizer, folder: Path) -> None:
    # The weights are plain floats by now, but the quantizer that read them refuses to save.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.generation_config.eos_token_id = list(tokenizer.end_ids)
    model.save_pretrained(folder)


def _write_tokenizer(tokenizer: GgufTokenizer, file: GgufFile, folder: Path) -> None:
    tokenizer.tokenizer.save(str(folder / "tokenizer.json"))
    architecture = file.text("general.architecture")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": file.number(f"{architecture}.context_length"),
        "clean_up_tokenization_spaces": False,
        # The class would add token_type_ids, which these models refuse.
        "model_input_names": ["input_ids", "attention_mask"],
        **tokenizer.special,
    }
    if tokenizer.chat_template is not None:
        config["chat_template"] = tokenizer.chat_template
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
