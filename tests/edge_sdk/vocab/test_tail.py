from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from edge_sdk.vocab import Kind, TokenRole, Vocabulary, tail
from edge_sdk.vocab.tail import TailEncoder
from edge_sdk.vocab.token_bytes import byte_level_alphabet

LETTERS = {byte: letter for letter, byte in byte_level_alphabet().items()}
TAILS = st.one_of(
    st.binary(max_size=24),
    st.text(max_size=12).map(lambda text: text.encode("utf-8", "replace")),
    st.lists(
        st.sampled_from([b" ", b"a", "é".encode(), b"\xf0\x9f", b"<eos>", b"\xed\xa0\x80", b"aa"])
    ).map(b"".join),
)


def byte_level(*, lacking: frozenset[int] = frozenset()) -> tuple[Vocabulary, Tokenizer]:
    words = [LETTERS[byte] for byte in range(256) if byte not in lacking]
    pieces = [bytes([byte]) for byte in range(256) if byte not in lacking]
    merged = [("a", "a", b"aa"), ("Ġ", "a", b" a"), ("Ã", "©", "é".encode())]
    merged += [("b", "c", b"bc"), ("a", "b", b"ab")]
    vocab = {word: i for i, word in enumerate([*words, *(a + b for a, b, _ in merged)])}
    tokenizer = Tokenizer(models.BPE(vocab, [(a, b) for a, b, _ in merged]))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<eos>"])
    pieces += [*(piece for _, _, piece in merged), b""]
    roles = {TokenRole.END_OF_TEXT: [len(pieces) - 1]}
    return Vocabulary.from_token_bytes(pieces, roles=roles), tokenizer


def sentencepiece(*, prefix: str = "normalizer") -> tuple[Vocabulary, Tokenizer]:
    words = ["<unk>", "<eos>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a", "é"]
    words += ["b", "c", "bc", "ab"]
    tokenizer = Tokenizer(
        models.BPE(
            {word: i for i, word in enumerate(words)},
            [("▁", "a"), ("b", "c"), ("a", "b")],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    if prefix == "normalizer":
        steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        tokenizer.normalizer = normalizers.Sequence(steps)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix, split=False)
    tokenizer.add_special_tokens(["<unk>", "<eos>"])
    tokenizer.add_tokens([AddedToken("aaa", normalized=False)])
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=9)
    singles = [bytes([byte]) for byte in range(256)]
    pieces = [b"", b"", *singles, b" ", b"a", b" a", "é".encode()]
    pieces += [b"b", b"c", b"bc", b"ab", b"aaa"]
    return Vocabulary.from_token_bytes(
        pieces,
        byte_fallback=range(2, 258),
        added=[266],
        roles={TokenRole.UNKNOWN: [0], TokenRole.END_OF_TEXT: [1]},
    ), tokenizer


def unigram() -> tuple[Vocabulary, Tokenizer]:
    """Without byte fallback: most characters have no token at all."""
    entries = [("<unk>", -9.0), ("▁", -3.0), ("a", -2.0), ("▁a", -1.0), ("é", -2.0)]
    tokenizer = Tokenizer(models.Unigram(entries, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    pieces = [b"", b" ", b"a", b" a", "é".encode()]
    return Vocabulary.from_token_bytes(pieces, roles={TokenRole.UNKNOWN: [0]}), tokenizer


def spelled(vocabulary: Vocabulary, ids: list[int]) -> bytes:
    assert all(vocabulary.kinds[token] < Kind.CONTROL for token in ids)
    return b"".join(vocabulary.pieces[token] for token in ids)


COMPLETE = {
    "byte level": byte_level(),
    "prepend": sentencepiece(),
    "metaspace always": sentencepiece(prefix="always"),
    "metaspace first": sentencepiece(prefix="first"),
}


@pytest.mark.parametrize("name", COMPLETE)
@given(data=TAILS)
def test_ids_spell_exactly_the_bytes(name: str, data: bytes) -> None:
    assert spelled(COMPLETE[name][0], ENCODERS[name](data)) == data


ENCODERS = {name: TailEncoder(*parts) for name, parts in COMPLETE.items()}


@pytest.mark.parametrize("name", COMPLETE)
def test_mid_text_has_no_prefix_space_and_keeps_the_tokenizers_pieces(name: str) -> None:
    vocabulary, encode = COMPLETE[name][0], ENCODERS[name]
    assert [vocabulary.pieces[i] for i in encode(b"a a")] == [b"a", b" a"]
    assert [vocabulary.pieces[i] for i in encode(b" a")] == [b" a"]
    assert encode(b"") == []


@pytest.mark.parametrize("name", COMPLETE)
@pytest.mark.parametrize(
    ("data", "pieces"),
    [
        (b"abc", [b"a", b"bc"]),
        (b"abcabcabc", [b"a", b"bc"] * 3),  # past the tokenizer's truncation
        (b"abc<eos>abc", [b"a", b"bc", b"<", b"e", b"o", b"s", b">", b"a", b"bc"]),
    ],
)
def test_pieces_are_those_of_the_tokenizer_not_the_longest(
    name: str, data: bytes, pieces: list[bytes]
) -> None:
    assert [COMPLETE[name][0].pieces[i] for i in ENCODERS[name](data)] == pieces


@pytest.mark.parametrize("name", COMPLETE)
def test_broken_utf8_is_single_bytes(name: str) -> None:
    vocabulary, encode = COMPLETE[name][0], ENCODERS[name]
    data = b"\x9f\x98" + "é".encode() + b"\xe2\x82"
    singles = [b"\x9f", b"\x98", "é".encode(), b"\xe2", b"\x82"]
    assert [vocabulary.pieces[i] for i in encode(data)] == singles


@pytest.mark.parametrize("name", COMPLETE)
def test_the_spelling_of_a_special_token_is_text(name: str) -> None:
    vocabulary, encode = COMPLETE[name][0], ENCODERS[name]
    assert spelled(vocabulary, encode(b"a<eos>a")) == b"a<eos>a"


def test_text_that_normalisation_would_change_keeps_its_bytes() -> None:
    vocabulary, encode = COMPLETE["byte level"][0], ENCODERS["byte level"]
    decomposed = "e\u0301".encode()
    assert spelled(vocabulary, encode(decomposed)) == decomposed


def test_ids_are_canonical() -> None:
    vocabulary, encode = COMPLETE["prepend"][0], ENCODERS["prepend"]
    ids = encode("a é \u20ac".encode() + b"\xff")
    assert vocabulary.canonical[ids].tolist() == ids


@given(TAILS)
def test_bytes_without_a_token_are_left_out(data: bytes) -> None:
    lacking = frozenset({0x04, 0xF5, 0xFF, 0x9F})
    vocabulary, _ = LACKING
    ids = LACKING_ENCODER(data)
    assert spelled(vocabulary, ids) == bytes(byte for byte in data if byte not in lacking)


LACKING = byte_level(lacking=frozenset({0x04, 0xF5, 0xFF, 0x9F}))
LACKING_ENCODER = TailEncoder(*LACKING)


@given(TAILS)
def test_a_character_without_a_token_is_never_the_unknown_token(data: bytes) -> None:
    vocabulary, _ = UNIGRAM
    found = spelled(vocabulary, UNIGRAM_ENCODER(data))
    kept = [c for c in data.decode("utf-8", "surrogateescape") if c in " aé"]
    assert found == "".join(kept).encode()


UNIGRAM = unigram()
UNIGRAM_ENCODER = TailEncoder(*UNIGRAM)


def test_an_unknown_token_that_normalisation_adds_is_left_out() -> None:
    vocabulary, tokenizer = unigram()
    tokenizer.normalizer = normalizers.Replace("a", "a€")
    assert 0 in tokenizer.encode("a").ids
    assert TailEncoder(vocabulary, tokenizer)(b"a") == [2]


def test_ids_past_the_models_width_are_not_used() -> None:
    vocabulary, tokenizer = sentencepiece()
    cut = Vocabulary(vocabulary.pieces[:-1], vocabulary.kinds[:-1], vocabulary.roles)
    assert spelled(cut, TailEncoder(cut, tokenizer)(b"aaa")) == b"aaa"


def test_the_callers_tokenizer_is_untouched() -> None:
    vocabulary, tokenizer = sentencepiece()
    before = tokenizer.to_str()
    TailEncoder(vocabulary, tokenizer)(b"a")
    assert tokenizer.to_str() == before
    assert not tokenizer.encode_special_tokens


def test_long_broken_input_is_quick() -> None:
    ids = ENCODERS["byte level"](b"\xff" * 200_000)
    assert len(ids) == 200_000


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_a_tokenizer_over_the_same_model_encodes_as_one_made_anew(
    make: Callable[[], tuple[Vocabulary, Tokenizer]],
) -> None:
    _, tokenizer = make()
    shared, anew = tail._in_mid_text(tokenizer), tail._anew(tokenizer)
    anew.encode_special_tokens = True
    assert shared.get_added_tokens_decoder() == anew.get_added_tokens_decoder()
    assert shared.get_vocab() == anew.get_vocab()
    for text in ("a", " a bc", "aaa", "<eos> ab", "é\u0301a", "\ta  ab\n", "x" * 20):
        assert shared.encode(text).ids == anew.encode(text).ids
        assert len(shared.encode(text).ids) != 9, "padding and truncation are the caller's"


def test_where_added_tokens_get_other_ids_the_copy_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, tokenizer = byte_level()
    made = []

    def anew(given: Tokenizer) -> Tokenizer:
        made.append(given)
        return Tokenizer.from_str(given.to_str())

    class Other:
        """A tokenizer whose added tokens have ids that it would not give out itself."""

        model, normalizer = tokenizer.model, tokenizer.normalizer
        pre_tokenizer, decoder = tokenizer.pre_tokenizer, tokenizer.decoder

        def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
            return {1000: AddedToken("<eos>", special=True)}

        def to_str(self) -> str:
            return str(tokenizer.to_str())

    monkeypatch.setattr(tail, "_anew", anew)
    tail._in_mid_text(Other())
    assert len(made) == 1
