"""Tiny random checkpoints of several families, saved as real folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

VOCABULARY = 320
WINDOW = 12
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,  # far from uniform laws, so that a wrong mask shows
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": None,
}
_MIXED = ["sliding_attention", "full_attention"] * 2
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**_SHAPE),
    "qwen2": lambda: Qwen2Config(**_SHAPE),
    "qwen3": lambda: Qwen3Config(**_SHAPE),
    "mistral": lambda: MistralConfig(**_SHAPE, sliding_window=WINDOW),
    "gemma2": lambda: Gemma2Config(
        **_SHAPE,
        sliding_window=WINDOW,
        layer_types=_MIXED,
        query_pre_attn_scalar=16,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=5.0,
    ),
    "gemma3": lambda: Gemma3TextConfig(
        **_SHAPE, sliding_window=WINDOW, layer_types=_MIXED, query_pre_attn_scalar=16
    ),
}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "[{{ m['role'] }}]{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def save_tokenizer(
    folder: Path, *, template: str | None = None, begin: bool = True, words: int = 0
) -> None:
    """A byte-level tokenizer: ids 0 to 255 are single bytes, 256 <bos>, 257 <eos>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: number for number, piece in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<bos>", "<eos>"])
    tokenizer.add_tokens([f"word{number:03}" for number in range(words)])
    if begin:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", 256)]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>")
    if template is not None:
        fast.chat_template = template
    fast.save_pretrained(folder)


def save_model(folder: Path, config: Any, *, seed: int = 0) -> None:
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Family -> its checkpoint folder. Not to be written to: copy it first."""
    made: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family not in made:
            folder = tmp_path_factory.mktemp(f"tiny-{family}")
            save_model(folder, FAMILIES[family]())
            save_tokenizer(folder, template=TEMPLATE if family == "llama" else None)
            made[family] = folder
        return made[family]

    return make


@pytest.fixture
def llama_copy(tiny_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    """A folder to damage."""
    return Path(shutil.copytree(tiny_folder("llama"), tmp_path / "llama"))


@pytest.fixture
def model_folder(tmp_path: Path) -> Callable[[Any], Path]:
    """Configuration -> a new checkpoint folder of it."""

    def make(config: Any) -> Path:
        save_model(tmp_path, config)
        save_tokenizer(tmp_path)
        return tmp_path

    return make


@pytest.fixture
def tokenizer_folder(tmp_path: Path) -> Callable[..., Path]:
    """Options of `save_tokenizer` -> a new folder with that tokenizer."""

    def make(**options: Any) -> Path:
        save_tokenizer(tmp_path, **options)
        return tmp_path

    return make


@pytest.fixture
def tiny_shape() -> dict[str, Any]:
    """Configuration values that most families share."""
    return dict(_SHAPE)
