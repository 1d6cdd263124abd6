"""The tokenizer of a GGUF file as a `tokenizers.Tokenizer`.

transformers reads these, too, but gives SmolLM2 no digit splitter and a stray
<|im_start|>, and turns Gemma's merge ranks into Unigram scores, which splits words
otherwise than Gemma does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.models import BPE

from edge_sdk.errors import TokenizerUnsupported
from export.gguf_file import GgufFile

SPACE = "▁"  # SentencePiece writes a space so

# llama.cpp ends a text at these, whatever the metadata say (llama-vocab.cpp). Only as
# control tokens: in Gemma's vocabulary </s> is the HTML tag.
END_TOKENS = (
    "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>",
    "<end_of_turn>", "<eos>", "</s>",
)  # fmt: skip

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


class PieceType(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """A tokenizer and what the model folder says around it.

    Attributes:
        tokenizer: with the beginning token in its template if the model wants one.
        special: `bos_token`, `eos_token`, `unk_token`, `pad_token` by name, where known.
        end_ids: ids that end a text, the declared one first.
        chat_template: Jinja source, None for a base model.
    """

    tokenizer: Tokenizer
    special: dict[str, str]
    end_ids: tuple[int, ...]
    chat_template: str | None


def read_gguf_tokenizer(file: GgufFile) -> GgufTokenizer:
    """Build the tokenizer that a GGUF file describes.

    Raises:
        TokenizerUnsupported: a tokenizer family that is not known here.
        ModelFolderInvalid: metadata are missing.
    """
    model = file.text("tokenizer.ggml.model")
    if model not in ("gpt2", "llama"):
        raise TokenizerUnsupported(
            f"{file.path} has a tokenizer of kind {model!r}; byte-level BPE ('gpt2') and "
            "SentencePiece BPE ('llama') can be read, use the Hugging Face folder of this model"
        )
    pieces = _Pieces.of(file)
    tokenizer = _byte_level(file, pieces) if model == "gpt2" else _sentencepiece(file, pieces)
    _add_tokens(tokenizer, pieces)
    special = _special_tokens(file, pieces)
    # SentencePiece models begin with their beginning token unless the file says otherwise.
    if (
        file.metadata.get("tokenizer.ggml.add_bos_token", model == "llama")
        and "bos_token" in special
    ):
        _begin_with(tokenizer, special["bos_token"])
    template = file.metadata.get("tokenizer.chat_template")
    return GgufTokenizer(
        tokenizer=tokenizer,
        special=special,
        end_ids=_end_ids(file, pieces),
        chat_template=template if isinstance(template, str) else None,
    )


@dataclass(frozen=True, slots=True)
class _Pieces:
    texts: list[str]
    types: list[int]
    scores: list[float]
    vocab: dict[str, int]

    @classmethod
    def of(cls, file: GgufFile) -> _Pieces:
        texts: list[str] = list(file.list("tokenizer.ggml.tokens"))
        types = file.list("tokenizer.ggml.token_type")
        scores = file.metadata.get("tokenizer.ggml.scores") or [0.0] * len(texts)
        if not len(texts) == len(types) == len(scores) or not texts:
            raise TokenizerUnsupported(
                f"{file.path} has {len(texts)} tokens, {len(types)} token types and "
                f"{len(scores)} scores; they must be as many, fetch the file again"
            )
        # Padding rows stay out: an id without a piece is what they are.
        vocab = {t: i for i, t in enumerate(texts) if types[i] != PieceType.UNUSED}
        kept = sum(kind != PieceType.UNUSED for kind in types)
        if len(vocab) != kept:
            raise TokenizerUnsupported(
                f"{file.path} has {kept - len(vocab)} tokens of equal spelling; "
                "use the Hugging Face folder of this model"
            )
        return cls(texts, types, scores, vocab)

    def of_type(self, kind: PieceType) -> list[str]:
        return [t for t, k in zip(self.texts, self.types, strict=True) if k == kind]


def _byte_level(file: GgufFile, pieces: _Pieces) -> Tokenizer:
    merges = [tuple(str(merge).split(" ", 1)) for merge in file.list("tokenizer.ggml.merges")]
    family = file.metadata.get("tokenizer.ggml.pre")
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    try:
        tokenizer = Tokenizer(BPE(pieces.vocab, merges, ignore_merges=family == "llama-bpe"))
    except Exception as error:  # tokenizers raises nothing narrower
        raise TokenizerUnsupported(
            f"{file.path} has merge rules that do not fit its tokens ({error}); fetch it again"
        ) from error
    if family == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, plain])
    elif family == "gpt-2":
        tokenizer.pre_tokenizer = plain
    elif family in ("llama-bpe", "qwen2"):
        pattern = Regex(_LLAMA3_SPLIT if family == "llama-bpe" else _QWEN2_SPLIT)
        split = pre_tokenizers.Split(pattern, "isolated")
        bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
        if family == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
    else:
        raise TokenizerUnsupported(
            f"{file.path} splits words by the rule {family!r}; the rules smollm, gpt-2, llama-bpe "
            "and qwen2 are known, use the Hugging Face folder of this model"
        )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(file: GgufFile, pieces: _Pieces) -> Tokenizer:
    unknown = file.metadata.get("tokenizer.ggml.unknown_token_id", 0)
    if type(unknown) is not int or not 0 <= unknown < len(pieces.texts):
        raise TokenizerUnsupported(
            f"{file.path} has unknown_token_id {unknown!r} among {len(pieces.texts)} tokens; "
            "fetch the file again"
        )
    fallback = bool(pieces.of_type(PieceType.BYTE))
    tokenizer = Tokenizer(
        BPE(
            pieces.vocab,
            _merges(pieces),
            unk_token=pieces.texts[unknown],
            fuse_unk=True,
            byte_fallback=fallback,
        )
    )
    replace = normalizers.Replace(" ", SPACE)
    decoding = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if file.metadata.get("tokenizer.ggml.add_space_prefix", True):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), replace])
        decoding.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = replace
    tokenizer.decoder = decoders.Sequence(decoding)
    return tokenizer


def _merges(pieces: _Pieces) -> list[tuple[str, str]]:
    """Merge rules of a SentencePiece BPE model, best first.

    SentencePiece joins the neighbours whose joined piece has the highest score
    (bpe_model.cc); a rule for every way to cut a piece in two says the same.
    """
    normal = {
        text: score
        for text, kind, score in zip(pieces.texts, pieces.types, pieces.scores, strict=True)
        if kind == PieceType.NORMAL
    }
    vocab = pieces.vocab
    rules = [
        (-score, vocab[text], text[:cut], text[cut:])
        for text, score in normal.items()
        for cut in range(1, len(text))
        if text[:cut] in normal and text[cut:] in normal
    ]
    rules.sort(key=lambda rule: rule[:2])
    return [(left, right) for _, _, left, right in rules]


def _add_tokens(tokenizer: Tokenizer, pieces: _Pieces) -> None:
    control = pieces.of_type(PieceType.CONTROL) + pieces.of_type(PieceType.UNKNOWN)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
    # SentencePiece takes a declared piece (a run of spaces, a tag) whole before any merge, and
    # so does an added token. GGUF spells their spaces as spaces, which is what text has.
    defined = pieces.of_type(PieceType.USER_DEFINED)
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in defined])


def _begin_with(tokenizer: Tokenizer, token: str) -> None:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A",
        pair=f"{token} $A {token}:1 $B:1",
        special_tokens=[(token, tokenizer.token_to_id(token))],
    )


def _special_tokens(file: GgufFile, pieces: _Pieces) -> dict[str, str]:
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    found = {}
    for key, name in names.items():
        token = file.metadata.get(f"tokenizer.ggml.{key}_token_id")
        if type(token) is int and 0 <= token < len(pieces.texts):
            found[name] = pieces.texts[token]
    return found


def _end_ids(file: GgufFile, pieces: _Pieces) -> tuple[int, ...]:
    declared = [
        file.metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")
    ]
    known = [pieces.vocab.get(token) for token in END_TOKENS]
    ids = [i for i in declared if type(i) is int and 0 <= i < len(pieces.texts)]
    ids += [i for i in known if i is not None and pieces.types[i] == PieceType.CONTROL]
    return tuple(dict.fromkeys(ids))
