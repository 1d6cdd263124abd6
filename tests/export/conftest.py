"""Tiny models, made on the spot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.quick_backend import QuickBackend

from export.backend_registry import BACKENDS

CHAT_TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
HIDDEN, LAYERS, HEADS, CONTEXT, PADDED = 32, 2, 4, 128, 272


class Recorder:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None]] = []
        self.amounts: list[int] = []
        self.notes: list[str] = []

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Recorder]:
        self.stages.append((name, total))
        self.amounts.append(0)
        yield self

    def advance(self, amount: int = 1) -> None:
        self.amounts[-1] += amount

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty model home."""
    folder = tmp_path / "home"
    monkeypatch.setenv("COSD_HOME", str(folder))
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, home: Path) -> type[QuickBackend]:
    """`QuickBackend` under the name quick."""
    monkeypatch.setitem(BACKENDS, "quick", ("harness.quick_backend", "QuickBackend"))
    monkeypatch.setattr(QuickBackend, "error", None)
    return QuickBackend


def byte_pieces() -> list[str]:
    """The 256 pieces of the byte-level alphabet."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def tiny_tokens() -> tuple[list[str], list[str]]:
    """Tokens and merges of a vocabulary of bytes, a few words and special tokens."""
    tokens = [*SPECIAL, *byte_pieces(), "th", "the", "Ġthe", "12"]
    return tokens, ["t h", "th e", "Ġ the", "1 2"]


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 2 layers with a byte-level tokenizer; its logits are padded."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny") / "tiny-llama"
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        vocab_size=PADDED,
        max_position_embeddings=CONTEXT,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokens, merges = tiny_tokens()
    tokenizer = Tokenizer(
        BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split()) for m in merges])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)
    return folder


def write_gguf(path: Path, **overrides: Any) -> dict[str, np.ndarray]:
    """Write a tiny Llama as GGUF in float32; returns its tensors by GGUF name.

    Overrides replace metadata: `add_bos`, `pre`, `model`, `architecture`.
    """
    import gguf

    architecture = overrides.get("architecture", "llama")
    writer = gguf.GGUFWriter(path, architecture)
    tokens, merges = tiny_tokens()
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model(overrides.get("model", "gpt2"))
    writer.add_tokenizer_pre(overrides.get("pre", "smollm"))
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(overrides.get("add_bos", False))
    writer.add_chat_template(CHAT_TEMPLATE)
    random = np.random.default_rng(0)
    shapes = {"token_embd.weight": (len(tokens), HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        for name, shape in {
            "attn_norm": (HIDDEN,),
            "ffn_norm": (HIDDEN,),
            "attn_q": (HIDDEN, HIDDEN),
            "attn_k": (HIDDEN // 2, HIDDEN),
            "attn_v": (HIDDEN // 2, HIDDEN),
            "attn_output": (HIDDEN, HIDDEN),
            "ffn_gate": (64, HIDDEN),
            "ffn_up": (64, HIDDEN),
            "ffn_down": (HIDDEN, 64),
        }.items():
            shapes[f"blk.{layer}.{name}.weight"] = shape
    for name in overrides.get("without", ()):
        del shapes[name]
    tensors = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "Tiny Model.gguf"
    write_gguf(path)
    return path


@pytest.fixture(scope="session")
def make_gguf() -> Any:
    """`write_gguf`."""
    return write_gguf
