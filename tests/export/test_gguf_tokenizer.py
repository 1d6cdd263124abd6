from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from edge_sdk.errors import ModelError, TokenizerUnsupported
from export.gguf_file import GgufFile
from export.gguf_tokenizer import GgufTokenizer, read_gguf_tokenizer

# A SentencePiece BPE model small enough to work out by hand; score = -rank of the merge.
SPM_PIECES: list[tuple[str, int, float]] = [
    ("<unk>", 2, -1000.0),
    ("<s>", 3, -1000.0),
    ("</s>", 3, -1000.0),
    ("  ", 4, -1000.0),
    ("   ", 4, -1000.0),
    ("<b>", 4, -1000.0),
    *[(f"<0x{i:02X}>", 6, -1000.0) for i in range(256)],
    ("▁a", 1, -1.0),
    ("ab", 1, -2.0),
    ("bc", 1, -3.0),
    ("▁ab", 1, -4.0),
    ("[PAD]", 5, -1000.0),
    *[(c, 1, -10.0 - i) for i, c in enumerate("▁abc")],
]


def spm(**extra: Any) -> GgufTokenizer:
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [piece for piece, _, _ in SPM_PIECES],
        "tokenizer.ggml.token_type": [kind for _, kind, _ in SPM_PIECES],
        "tokenizer.ggml.scores": [score for _, _, score in SPM_PIECES],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": False,
        **{f"tokenizer.ggml.{key}": value for key, value in extra.items()},
    }
    return read_gguf_tokenizer(GgufFile(Path("toy.gguf"), metadata, ()))


def byte_level(tiny_gguf: Path, **extra: Any) -> Tokenizer:
    file = GgufFile.read(tiny_gguf)
    metadata = {**file.metadata, **{f"tokenizer.ggml.{key}": v for key, v in extra.items()}}
    return read_gguf_tokenizer(GgufFile(file.path, metadata, ())).tokenizer


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("ab", ["ab"]),
        ("abc", ["ab", "c"]),
        ("bcb", ["bc", "b"]),
        (" ab", ["▁ab"]),
        (" abc", ["▁a", "bc"]),  # ▁a first, then bc before ▁ab
        ("  ab", ["  ", "ab"]),
        ("     a", ["   ", "  ", "a"]),
        ("a<b>c", ["a", "<b>", "c"]),
        ("é", ["<0xC3>", "<0xA9>"]),
        ("a\n", ["a", "<0x0A>"]),
    ],
)
def test_sentencepiece_merges_by_score(text: str, pieces: list[str]) -> None:
    tokenizer = spm().tokenizer
    encoded = tokenizer.encode(text)
    assert encoded.tokens == ["<s>", *pieces]
    assert tokenizer.decode(encoded.ids) == text


def test_beginning_token_as_the_file_says() -> None:
    assert spm().tokenizer.encode("a").tokens == ["<s>", "a"]
    assert spm(add_bos_token=False).tokenizer.encode("a").tokens == ["a"]
    assert spm().tokenizer.encode("a", add_special_tokens=False).tokens == ["a"]


def test_space_prefix_as_the_file_says() -> None:
    tokenizer = spm(add_space_prefix=True).tokenizer
    assert tokenizer.encode("ab", add_special_tokens=False).tokens == ["▁ab"]
    assert tokenizer.decode(tokenizer.encode("ab").ids) == "ab"


def test_padding_rows_have_no_piece() -> None:
    tokenizer = spm().tokenizer
    assert tokenizer.token_to_id("[PAD]") is None
    assert tokenizer.token_to_id("c") == len(SPM_PIECES) - 1


def test_end_ids_are_control_tokens_only() -> None:
    assert spm().end_ids == (2,)
    kinds = [4 if piece == "</s>" else kind for piece, kind, _ in SPM_PIECES]
    assert spm(token_type=kinds, eos_token_id=1).end_ids == (1,)


def test_digits_stand_alone_under_the_smollm_rule_only(tiny_gguf: Path) -> None:
    assert byte_level(tiny_gguf).encode("the 12").tokens == ["the", "Ġ", "1", "2"]
    assert byte_level(tiny_gguf, pre="gpt-2").encode("12").tokens == ["12"]


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "llama-bpe", "qwen2"])
def test_every_byte_survives(tiny_gguf: Path, pre: str) -> None:
    tokenizer = byte_level(tiny_gguf, pre=pre)
    for text in [" the  12\n\n\t", "naïve café 🤖👩‍🚀", "<|im_start|>user", "'ll 3.14 ₂x"]:
        decoded = tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False)
        assert decoded == text


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"model": "t5"}, "kind 't5'"),
        ({"pre": "tomorrow"}, "rule 'tomorrow'"),
        ({"pre": None}, "rule None"),
        ({"token_type": [1, 2]}, "2 token types"),
        ({"tokens": "no list"}, "no list under"),
        ({"tokens": []}, "0 tokens"),
        ({"merges": 5}, "no list under"),
        ({"merges": ["t h e x", "only"]}, "merge"),
        ({"merges": ["t q"]}, "merge"),
        ({"unknown_token_id": 10**9}, None),
    ],
)
def test_unknown_families_are_named(
    tiny_gguf: Path, extra: dict[str, Any], message: str | None
) -> None:
    if message is None:
        with pytest.raises(TokenizerUnsupported, match="unknown_token_id"):
            spm(**extra)
        return
    with pytest.raises(ModelError, match=message) as caught:
        byte_level(tiny_gguf, **extra)
    assert str(tiny_gguf) in caught.value.message


def test_equal_spellings_are_refused() -> None:
    tokens = [piece for piece, _, _ in SPM_PIECES]
    tokens[-1] = "ab"
    with pytest.raises(TokenizerUnsupported, match="1 tokens of equal spelling"):
        spm(tokens=tokens)


def _real(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


TEXTS = [
    "In 2024, 1234567 people",
    " leading",
    "     five",
    "  two\n\nnewlines\t\ttabs\n",
    "emoji 🤖é ☃ 𓀀 👩‍🚀",
    "def f(x):\n    return x<b>1</b>",
    "Die Straße führt über Köln.",
    "日本語のテキスト",
    "a\0b",
]


@pytest.mark.models
@pytest.mark.parametrize("text", TEXTS)
def test_real_tokenizers_give_the_text_back(
    smollm2_folder: Path, gemma_folder: Path, text: str
) -> None:
    for folder in (smollm2_folder, gemma_folder):
        tokenizer = _real(folder)
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.models
def test_smollm2_is_the_published_tokenizer(smollm2_folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder)
    assert tokenizer.tokenize("In 2024: 75%") == ["In", "Ġ", *"2024", ":", "Ġ", *"75", "%"]
    assert tokenizer("Hello").input_ids == tokenizer("Hello", add_special_tokens=False).input_ids
    assert tokenizer("").input_ids == []
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True
    )
    # Ids of the default system message as the model's own repository gives them.
    assert chat[:24] == [
        *(1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28),
        *(7018, 411, 407, 19712, 8182, 2, 198, 1, 4093, 198),
    ]
    assert chat[-4:] == [1, 520, 9531, 198]
    assert tokenizer.eos_token_id == 2


# Ids from sentencepiece 0.2.1 on a model file with the pieces, scores and types of the GGUF.
GEMMA_IDS = {
    "In 2024, 1234567 people": [
        *(902, 236743, 236778, 236771, 236778, 236812, 236764, 236743),
        *(236770, 236778, 236800, 236812, 236810, 236825, 236832, 1331),
    ],
    " leading space": [5830, 2557],
    "  two\n\nnewlines\t\ttabs": [138, 13498, 108, 208697, 255969, 39218],
    "emoji 🤖é ☃ 𓀀": [
        *(67906, 236743, 246143, 236859, 236743, 246690, 236743, 478, 385, 366, 366),
    ],
    "def f(x):\n    return x<b>1</b>": [
        *(2063, 517, 236769, 236781, 1473, 107, 140, 2060, 1123, 200, 236770, 209),
    ],
    "Straße über Köln": [223305, 8046, 115362],
    "     five": [141, 21716],
    "日本語のテキスト": [94951, 236945, 95830],
    "a\0b": [236746, 238, 236763],
}


@pytest.mark.models
def test_gemma_splits_as_sentencepiece_does(gemma_folder: Path) -> None:
    tokenizer = _real(gemma_folder)
    for text, ids in GEMMA_IDS.items():
        assert tokenizer.encode(text, add_special_tokens=False).ids == ids
        assert tokenizer.encode(text).ids == [2, *ids], "<bos> once, at the start"


@pytest.mark.models
def test_gemma_through_transformers(gemma_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gemma_folder)
    for text, ids in GEMMA_IDS.items():
        assert tokenizer(text).input_ids == [2, *ids]
    assert tokenizer.chat_template is None
    assert "regex" not in caplog.text
