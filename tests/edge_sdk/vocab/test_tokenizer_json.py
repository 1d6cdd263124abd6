from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from edge_sdk.errors import InvalidRequest, ModelFolderInvalid, TokenizerUnsupported
from edge_sdk.vocab import Kind, TokenRole, Vocabulary, read_tokenizer
from edge_sdk.vocab.token_bytes import ByteLevel, byte_level_alphabet

TEXT, TURN = TokenRole.END_OF_TEXT, TokenRole.END_OF_TURN


def byte_level(words: list[str], added: list[AddedToken] | None = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if added:
        tokenizer.add_tokens(added)
    return tokenizer


def sentencepiece_like(words: list[str], *, fallback: bool = True) -> Tokenizer:
    vocab = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab, [], byte_fallback=fallback))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def saved(tokenizer: Tokenizer, folder: Path, **configs: Any) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def kinds(vocabulary: Vocabulary) -> list[Kind]:
    return [Kind(kind) for kind in vocabulary.kinds]


def test_the_byte_level_alphabet_is_gpt2s() -> None:
    alphabet = byte_level_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert set(alphabet) == set(pre_tokenizers.ByteLevel.alphabet())
    assert alphabet["Ġ"] == 0x20
    assert alphabet["Ċ"] == 0x0A
    assert alphabet["Í"] == 0xCD


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20))
def test_byte_level_spelling_is_that_of_tokenizers(text: str) -> None:
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled = "".join(part for part, _ in splitter.pre_tokenize_str(text))
    assert ByteLevel().spell(spelled) == text.encode()


def test_byte_level(tmp_path: Path) -> None:
    tokenizer = byte_level(
        ["Ġthe", "Í", "Ã", "<0x41>", "a"],
        [
            AddedToken("é", special=False, normalized=False),
            AddedToken("<|im_end|>", special=True),
        ],
    )
    vocabulary = read_tokenizer(saved(tokenizer, tmp_path))
    assert vocabulary.pieces == (b" the", b"\xcd", b"\xc3", b"<0x41>", b"a", "é".encode(), b"")
    assert kinds(vocabulary) == [Kind.NORMAL] * 5 + [Kind.ADDED, Kind.CONTROL]
    assert vocabulary.roles == {TURN: (6,)}


@pytest.mark.parametrize("place", ["pre_tokenizer", "decoder", "in a sequence"])
def test_byte_level_may_be_declared_in_any_section(tmp_path: Path, place: str) -> None:
    tokenizer = Tokenizer(models.BPE({"Ġa": 0}, []))
    step = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if place == "decoder":
        tokenizer.decoder = decoders.ByteLevel()
    else:
        digits = pre_tokenizers.Digits(individual_digits=True)
        inner = pre_tokenizers.Sequence([digits, step])
        tokenizer.pre_tokenizer = step if place == "pre_tokenizer" else inner
    assert read_tokenizer(saved(tokenizer, tmp_path)).pieces == (b" a",)


def test_sentencepiece_style(tmp_path: Path) -> None:
    tokenizer = sentencepiece_like(["▁the", "Í", "<0xCD>", "<0x41>", "A", "▁", "<0xZZ>"])
    vocabulary = read_tokenizer(saved(tokenizer, tmp_path))
    assert vocabulary.pieces == (b" the", "Í".encode(), b"\xcd", b"A", b"A", b" ", b"<0xZZ>")
    assert [place for place, kind in enumerate(kinds(vocabulary)) if kind == Kind.BYTE] == [2, 3]
    assert vocabulary.canonical[3] == 4


def test_without_byte_fallback_such_a_token_is_text(tmp_path: Path) -> None:
    tokenizer = sentencepiece_like(["▁a", "<0x41>"], fallback=False)
    content = json.loads(tokenizer.to_str())
    content["decoder"]["decoders"].pop(1)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert read_tokenizer(tmp_path).pieces == (b" a", b"<0x41>")


def test_unigram_with_metaspace(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁a", -1.0), ("b", -2.0)], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    vocabulary = read_tokenizer(saved(tokenizer, tmp_path))
    assert vocabulary.pieces == (b"", b" a", b"b")
    assert vocabulary.roles == {TokenRole.UNKNOWN: (0,)}
    assert vocabulary.masked_ids.tolist() == [0]


def test_a_byte_that_a_conversion_respelled_is_still_byte_fallback(tmp_path: Path) -> None:
    # transformers writes Gemma's <0x09> as a tab, which then hides the true tab token.
    words = [f"<0x{value:02X}>" for value in range(256)]
    entries = [(word, 0.0) for word in words] + [("▁", -1.0), ("\t", -2.0)]
    entries[9] = ("\t", 0.0)
    content = json.loads(sentencepiece_like(["▁"]).to_str())
    content["model"] = {"type": "Unigram", "unk_id": None, "vocab": entries, "byte_fallback": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    vocabulary = read_tokenizer(tmp_path)
    assert vocabulary.kinds[9] == Kind.BYTE
    assert vocabulary.canonical[9] == 257


def test_html_tags_are_text_and_special_ones_are_not(tmp_path: Path) -> None:
    tokenizer = sentencepiece_like(["▁", "</s>", "<end_of_turn>", "<unused3>", "[UNUSED_7]"])
    tokenizer.add_tokens([AddedToken("<table>", normalized=False), AddedToken("▁▁")])
    tokenizer.add_special_tokens(["<eos>", "<|reserved_special_token_12|>"])
    vocabulary = read_tokenizer(saved(tokenizer, tmp_path))
    # An added token is matched in the text as it is written, so its sign is no space.
    texts = (b" ", b"</s>", b"", b"", b"", b"<table>", "▁▁".encode(), b"", b"")
    assert vocabulary.pieces == texts
    control, unused = Kind.CONTROL, Kind.UNUSED
    assert kinds(vocabulary)[2:5] == [control, unused, unused]
    assert kinds(vocabulary)[5:] == [Kind.ADDED, Kind.ADDED, control, unused]
    assert vocabulary.roles == {TEXT: (7,), TURN: (2,)}


def test_roles_of_configuration_files(tmp_path: Path) -> None:
    tokenizer = byte_level(["a", "b"])
    tokenizer.add_special_tokens(["<|user|>", "<|endoftext|>", "<|im_end|>", "<|pad|>", "<s>"])
    vocabulary = read_tokenizer(
        saved(
            tokenizer,
            tmp_path,
            generation_config={"eos_token_id": [2, 4]},
            config={"text_config": {"eos_token_id": 3}, "pad_token_id": -1},
            tokenizer_config={"eos_token": {"content": "<|im_end|>"}, "bos_token": None},
        )
    )
    # Ids that a file names come first, and a spelling says which kind of end they are.
    assert vocabulary.roles == {
        TokenRole.BEGIN: (6,),
        TEXT: (2, 3),
        TURN: (4,),
        TokenRole.PADDING: (5,),
    }


def test_explicit_roles_win(tmp_path: Path) -> None:
    tokenizer = byte_level(["a"])
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_end|>", "<pad>"])
    folder = saved(tokenizer, tmp_path, tokenizer_config={"eos_token": "<|endoftext|>"})
    assert read_tokenizer(folder).roles[TEXT] == (1,)
    vocabulary = read_tokenizer(folder, roles={TEXT: [2], TokenRole.PADDING: []})
    assert vocabulary.roles == {TEXT: (2,)}


def test_padding_that_is_text_stays_text(tmp_path: Path) -> None:
    folder = saved(byte_level(["!", "a"]), tmp_path, tokenizer_config={"pad_token": "!"})
    vocabulary = read_tokenizer(folder)
    assert vocabulary.pieces[0] == b"!"
    assert vocabulary.masked_ids.size == 0


def test_a_token_shared_by_roles_is_no_twin(tmp_path: Path) -> None:
    tokenizer = byte_level(["a"])
    tokenizer.add_special_tokens(["<|endoftext|>"])
    names = dict.fromkeys(("eos_token", "bos_token", "unk_token", "pad_token"), "<|endoftext|>")
    vocabulary = read_tokenizer(saved(tokenizer, tmp_path, tokenizer_config=names))
    assert vocabulary.end_ids == {1}
    assert vocabulary.masked_ids.size == 0


def test_width_and_holes(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 3}, []))
    tokenizer.decoder = decoders.ByteLevel()
    folder = saved(tokenizer, tmp_path)
    assert read_tokenizer(folder).masked_ids.tolist() == [1, 2]
    assert read_tokenizer(folder, width=6).masked_ids.tolist() == [1, 2, 4, 5]
    with pytest.raises(TokenizerUnsupported, match="logits are 3 wide"):
        read_tokenizer(folder, width=3)


def test_a_file_is_as_good_as_its_folder(tmp_path: Path) -> None:
    folder = saved(byte_level(["a"]), tmp_path)
    assert (
        read_tokenizer(folder / "tokenizer.json").fingerprint == read_tokenizer(folder).fingerprint
    )


@pytest.mark.parametrize(
    "model",
    [
        models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"),
        models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"),
        models.BPE({"a</w>": 0}, [], end_of_word_suffix="</w>"),
        models.BPE({"##a": 0}, [], continuing_subword_prefix="##"),
        models.BPE({"a": 0}, []),
    ],
    ids=["WordPiece", "WordLevel", "end_of_word_suffix", "continuing_subword_prefix", "undeclared"],
)
def test_tokens_without_bytes_are_refused(tmp_path: Path, model: Any) -> None:
    with pytest.raises(TokenizerUnsupported, match="bytes"):
        read_tokenizer(saved(Tokenizer(model), tmp_path))


def damaged(**changes: Any) -> str:
    content = json.loads(byte_level(["a", "b"]).to_str())
    return json.dumps(content | changes)


BPE = {"type": "BPE", "merges": []}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not valid JSON"),
        (damaged()[:200], "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "holds no JSON object"),
        ("{}", "has no model section"),
        (damaged(model=None), "has no model section"),
        (damaged(model=BPE), "without a vocabulary"),
        (damaged(model=BPE | {"vocab": {}}), "has no tokens"),
        (damaged(model=BPE | {"vocab": {"a": "0"}}), "lists token 'a' with id '0'"),
        (damaged(model=BPE | {"vocab": {"a": True}}), "lists token 'a' with id True"),
        (damaged(model=BPE | {"vocab": {"a": 0, "b": 0}}), "gives id 0 to both 'a' and 'b'"),
        (damaged(model=BPE | {"vocab": [[1, 2]]}), "lists token 1 with id 0"),
        (damaged(model=BPE | {"vocab": {"a": 0}, "unk_id": 1}), "has unk_id 1, which is no token"),
        (damaged(model=BPE | {"vocab": {"a": 0}, "unk_id": -1}), "has unk_id -1"),
        (damaged(added_tokens={}), "added_tokens that are no list"),
        (damaged(added_tokens=["x"]), "has an added token 'x'"),
        (damaged(added_tokens=[{"id": None, "content": "x"}]), "lists token 'x' with id None"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ModelFolderInvalid, match=why):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("token", [-1, 1_000_000, 10**12])
def test_absurd_ids_are_refused(tmp_path: Path, token: int) -> None:
    (tmp_path / "tokenizer.json").write_text(damaged(model=BPE | {"vocab": {"a": token}}))
    with pytest.raises(TokenizerUnsupported, match="outside 0 to 999999"):
        read_tokenizer(tmp_path)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    step: dict[str, Any] = {"type": "ByteLevel"}
    for _ in range(200):
        step = {"type": "Sequence", "decoders": [step]}
    (tmp_path / "tokenizer.json").write_text(damaged(decoder=step))
    with pytest.raises(TokenizerUnsupported, match="decoder is nested deeper than 16"):
        read_tokenizer(tmp_path)


def test_half_a_surrogate_pair_is_refused(tmp_path: Path) -> None:
    text = damaged(model=BPE | {"vocab": {"\ud83d": 0}})
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(TokenizerUnsupported, match="half of a surrogate pair"):
        read_tokenizer(tmp_path)


def test_missing_files_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", tmp_path / "none.json"):
        with pytest.raises(ModelFolderInvalid, match="does not exist"):
            read_tokenizer(path)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"eos_token_id": 9}, "generation_config.json: eos_token_id names 9"),
        ({"eos_token_id": {"content": 1.5}}, "neither a token nor an id"),
        ({"eos_token_id": [0, [None, 2.0]]}, "neither a token nor an id"),
    ],
)
def test_configuration_of_another_model_is_refused(
    tmp_path: Path, config: dict[str, Any], why: str
) -> None:
    folder = saved(byte_level(["a"]), tmp_path, generation_config=config)
    with pytest.raises(ModelFolderInvalid, match=why):
        read_tokenizer(folder)


def test_roles_past_the_end_are_refused(tmp_path: Path) -> None:
    folder = saved(byte_level(["a"]), tmp_path)
    with pytest.raises(InvalidRequest, match="roles name id 1"):
        read_tokenizer(folder, roles={TEXT: [1]})
