from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from edge_sdk.errors import TokenizerUnsupported, UnsupportedModel
from export.checkpoint import read_checkpoint
from export.gguf_source import convert_gguf


@pytest.fixture(scope="module")
def converted(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted")
    convert_gguf(tiny_gguf, folder)
    return folder


def test_weights_are_the_files_own(converted: Path, make_gguf: Any, tmp_path: Path) -> None:
    original = make_gguf(tmp_path / "again.gguf")
    saved = load_file(converted / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {np.dtype(np.float32)}
    for gguf_name, name in {
        "token_embd.weight": "model.embed_tokens.weight",
        "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
        "blk.1.attn_v.weight": "model.layers.1.self_attn.v_proj.weight",
    }.items():
        np.testing.assert_array_equal(saved[name], original[gguf_name])


def test_the_folder_is_a_checkpoint(converted: Path) -> None:
    checkpoint = read_checkpoint(converted)
    assert checkpoint.architecture == "LlamaForCausalLM"
    assert checkpoint.context == 128
    generation = json.loads((converted / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [2, 0]
    config = json.loads((converted / "config.json").read_text())
    assert "quantization_config" not in config
    tokenizer = json.loads((converted / "tokenizer_config.json").read_text())
    assert tokenizer["eos_token"] == "<|im_end|>"
    assert "<|im_start|>assistant" in tokenizer["chat_template"]


def test_transformers_reads_tokenizer_and_template(converted: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.tokenize("the 12") == ["the", "Ġ", "1", "2"]
    assert set(tokenizer("the")) == {"input_ids", "attention_mask"}
    text = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    assert text.endswith("<|im_start|>user\nx<|im_end|>\n")


def test_progress_counts_tensors(tiny_gguf: Path, tmp_path: Path, recorder: Any) -> None:
    convert_gguf(tiny_gguf, tmp_path, progress=recorder)
    place = [name for name, _ in recorder.stages].index("de-quantise the weights")
    assert recorder.stages[place][1] == recorder.amounts[place] == 20


def test_missing_tensors_are_never_made_up(make_gguf: Any, tmp_path: Path) -> None:
    make_gguf(tmp_path / "x.gguf", without=["blk.1.ffn_up.weight"])
    with pytest.raises(UnsupportedModel, match=r"lacks the weights model\.layers\.1\.mlp\.up_proj"):
        convert_gguf(tmp_path / "x.gguf", tmp_path)


def test_unknown_architecture_and_tokenizer(make_gguf: Any, tmp_path: Path) -> None:
    make_gguf(tmp_path / "x.gguf", architecture="mamba9")
    with pytest.raises(UnsupportedModel, match="mamba9"):
        convert_gguf(tmp_path / "x.gguf", tmp_path)
    make_gguf(tmp_path / "y.gguf", pre="tomorrow")
    with pytest.raises(TokenizerUnsupported, match="tomorrow"):
        convert_gguf(tmp_path / "y.gguf", tmp_path)


def _continued(folder: Path, prompt: str, *, chat: bool, tokens: int) -> str:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    text = (
        tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        if chat
        else prompt
    )
    ids = tokenizer(text, return_tensors="pt")
    made = model.generate(**ids, max_new_tokens=tokens, do_sample=False)
    answer: str = tokenizer.decode(made[0][ids.input_ids.shape[1] :], skip_special_tokens=True)
    return answer


@pytest.mark.models
@pytest.mark.filterwarnings("ignore")
def test_the_real_models_make_sense(smollm2_folder: Path, gemma_folder: Path) -> None:
    question = "What is the capital of France?"
    answer = _continued(smollm2_folder, question, chat=True, tokens=12)
    assert answer == "The capital of France is Paris."
    assert "Paris" in _continued(smollm2_folder, "The capital of France is", chat=False, tokens=4)
    assert "Paris" in _continued(
        gemma_folder, f"Question: {question}\nAnswer:", chat=False, tokens=4
    )
    assert _continued(gemma_folder, "1, 2, 3, 4,", chat=False, tokens=9) == " 5, 6, 7,"
