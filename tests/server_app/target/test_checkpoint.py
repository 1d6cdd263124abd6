from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    CohereConfig,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    T5Config,
)

from edge_sdk.errors import ModelFolderInvalid, TokenizerUnsupported, UnsupportedModel
from server_app.target import self_check
from server_app.target.checkpoint import layer_windows, read_config
from server_app.target.hugging_face import HuggingFaceTarget
from server_app.target.model import Chunk


def load(folder: Path) -> HuggingFaceTarget:
    return HuggingFaceTarget.load(folder, device="cpu", dtype="float32")


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_missing_folder_or_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match=r"nowhere is not a folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(ModelFolderInvalid, match=r"has no config\.json"):
        load(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "\x00"])
def test_a_damaged_config_is_named(llama_copy: Path, content: str) -> None:
    (llama_copy / "config.json").write_text(content)
    with pytest.raises(ModelFolderInvalid, match=r"config\.json"):
        load(llama_copy)


def test_an_unknown_architecture_is_named(llama_copy: Path) -> None:
    edit_config(llama_copy, model_type="frobnicator", architectures=["FrobForCausalLM"])
    with pytest.raises(UnsupportedModel, match="FrobForCausalLM"):
        load(llama_copy)


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    T5Config(architectures=["T5ForConditionalGeneration"]).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match="T5ForConditionalGeneration is an encoder-decoder"):
        load(tmp_path)


def test_a_model_with_attention_of_its_own_is_refused(
    model_folder: Callable[[Any], Path],
) -> None:
    folder = model_folder(BloomConfig(vocab_size=320, hidden_size=32, n_layer=2, n_head=4))
    with pytest.raises(UnsupportedModel, match="BloomForCausalLM"):
        load(folder)


def test_layers_that_cannot_be_rolled_back_are_refused(llama_copy: Path) -> None:
    config = read_config(llama_copy)
    config.layer_types = ["full_attention", "chunked_attention", "linear_attention"]
    with pytest.raises(UnsupportedModel, match="chunked_attention, linear_attention"):
        layer_windows(config)


def test_windows_follow_the_configuration(tiny_shape: dict[str, Any]) -> None:
    assert layer_windows(LlamaConfig(**tiny_shape)) == [None] * 4
    assert layer_windows(MistralConfig(**tiny_shape, sliding_window=9)) == [9] * 4
    mixed = Qwen2Config(
        **tiny_shape, use_sliding_window=True, sliding_window=9, max_window_layers=3
    )
    assert layer_windows(mixed) == [None, None, None, 9]


@pytest.mark.parametrize("config_class", [GPTNeoXConfig, GraniteConfig, CohereConfig, Qwen2Config])
def test_other_families_and_their_output_scaling(
    model_folder: Callable[[Any], Path], tiny_shape: dict[str, Any], config_class: Any
) -> None:
    folder = model_folder(config_class(**tiny_shape))
    target = load(folder)
    stock = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    text = list(range(30, 90))
    sequence = target.new_sequence()
    target.forward([Chunk(sequence, text[:50], 0)])
    (mine,) = target.forward([Chunk(sequence, text[50:], 4)])
    with torch.inference_mode():
        expected = stock(input_ids=torch.tensor([text])).logits[0, -4:]
    torch.testing.assert_close(mine, expected, rtol=0, atol=1e-5)


def test_missing_weights_are_named(llama_copy: Path) -> None:
    (llama_copy / "model.safetensors").unlink()
    with pytest.raises(ModelFolderInvalid, match=r"has no model\.safetensors"):
        load(llama_copy)


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_truncated_weights_are_named(llama_copy: Path, kept: int) -> None:
    file = llama_copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ModelFolderInvalid, match=r"model\.safetensors .* copy or download it"):
        load(llama_copy)


def test_weights_that_are_something_else_are_named(llama_copy: Path) -> None:
    (llama_copy / "model.safetensors").write_bytes((30).to_bytes(8, "little") + b"{" * 100)
    with pytest.raises(ModelFolderInvalid, match="is not a safetensors file"):
        load(llama_copy)


def test_a_missing_shard_is_named(llama_copy: Path) -> None:
    (llama_copy / "model.safetensors").unlink()
    index = {"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}
    (llama_copy / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelFolderInvalid, match=r"model-00001-of-00002\.safetensors is missing"):
        load(llama_copy)


def test_a_missing_tensor_is_named_and_never_made_up(llama_copy: Path) -> None:
    file = llama_copy / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ModelFolderInvalid, match=r"lack 1 tensors .* model\.layers\.2\.mlp\.up"):
        load(llama_copy)


def test_weights_of_another_shape_are_refused(llama_copy: Path) -> None:
    edit_config(llama_copy, intermediate_size=80)
    with pytest.raises(ModelFolderInvalid, match="do not load as LlamaForCausalLM"):
        load(llama_copy)


def test_a_missing_tokenizer_is_named(llama_copy: Path) -> None:
    (llama_copy / "tokenizer.json").unlink()
    with pytest.raises(ModelFolderInvalid, match=r"tokenizer\.json"):
        load(llama_copy)


def test_a_tokenizer_larger_than_the_embedding_is_refused(
    llama_copy: Path, tokenizer_folder: Callable[..., Path]
) -> None:
    tokenizer_folder(words=100)  # 358 ids for 320 rows
    (llama_copy / "tokenizer.json").write_bytes((llama_copy.parent / "tokenizer.json").read_bytes())
    with pytest.raises(TokenizerUnsupported, match="320"):
        load(llama_copy)


def test_the_self_check_sees_another_model(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = load(tiny_folder("llama"))
    other = AutoModelForCausalLM.from_pretrained(tiny_folder("qwen3"))
    with pytest.raises(UnsupportedModel, match="Qwen3ForCausalLM gives other logits"):
        self_check.check_against_stock(target, other)
    monkeypatch.setattr(other, "forward", lambda **arguments: 1 / 0)
    with pytest.raises(UnsupportedModel, match="does not run: ZeroDivisionError"):
        self_check.check_against_stock(target, other)
