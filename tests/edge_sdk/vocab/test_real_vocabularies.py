"""The default pair: SmolLM2 drafts for Gemma 3."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from edge_sdk.vocab import Alignment, Kind, TokenRole, Vocabulary, read_tokenizer
from edge_sdk.vocab.tail import TailEncoder

pytestmark = pytest.mark.models

TEXT = (
    "Die Straße war naß, 12.5 % höher.\n\n\tdef f(x):\n    return x ** 2\r\n"
    "<table> </s> «Íslenska» – 東京 😀 ‖ 0123456789 ~!@#$%^&*()_+{}|:\"<>?`-=[]\\;',./ e\u0301"
)


@pytest.fixture(scope="module")
def folders(smollm2_folder: Path, gemma_folder: Path) -> dict[str, Path]:
    return {"smollm2-135m": smollm2_folder, "gemma3-270m": gemma_folder}


@pytest.fixture(scope="module")
def draft(folders: dict[str, Path]) -> Vocabulary:
    return read_tokenizer(folders["smollm2-135m"], width=49_152)


@pytest.fixture(scope="module")
def target(folders: dict[str, Path]) -> Vocabulary:
    return read_tokenizer(folders["gemma3-270m"], width=262_144)


@pytest.fixture(scope="module")
def aligned(target: Vocabulary, draft: Vocabulary) -> Alignment:
    return Alignment.between(target=target, draft=draft)


def test_size_of_the_common_vocabulary(aligned: Alignment) -> None:
    assert aligned.text_tokens == 46_145
    assert len(aligned) == 46_147


def test_bytes_agree_both_ways(aligned: Alignment, target: Vocabulary, draft: Vocabulary) -> None:
    ours, theirs = aligned.target_ids.tolist(), aligned.draft_ids.tolist()
    assert len(set(ours)) == len(set(theirs)) == len(aligned)
    for our, their in zip(ours, theirs, strict=True):
        assert target.pieces[our] == draft.pieces[their]


def test_every_printable_ascii_piece_meets_its_normal_id(
    aligned: Alignment, target: Vocabulary, draft: Vocabulary
) -> None:
    normal = {
        target.pieces[i]: i for i in np.flatnonzero(target.kinds != Kind.BYTE) if target.pieces[i]
    }
    checked = 0
    for token, piece in enumerate(draft.pieces):
        if piece in normal and all(0x20 <= byte < 0x7F for byte in piece):
            assert aligned.target_ids[aligned.rank_of_draft[token]] == normal[piece]
            checked += 1
    assert checked > 44_000
    for digit in b"0123456789":
        assert target.kinds[target.ids_by_bytes[bytes([digit])]] == Kind.NORMAL


def test_roles(target: Vocabulary, draft: Vocabulary, aligned: Alignment) -> None:
    assert target.roles[TokenRole.END_OF_TEXT] == (1,)
    assert target.roles[TokenRole.END_OF_TURN] == (106,)
    assert draft.roles[TokenRole.END_OF_TEXT] == (0,)
    assert draft.roles[TokenRole.END_OF_TURN] == (2,)
    for ours, theirs in ((1, 0), (106, 2)):
        assert aligned.draft_ids[aligned.rank_of_target[ours]] == theirs


def test_gemmas_reserved_ids_are_masked_and_its_tags_are_text(target: Vocabulary) -> None:
    assert target.masked_ids.size == 6_242 + 2  # unused ids, padding, unknown token
    for piece in (b"\n\n", b"\t", b"   ", b"<table>", b"</s>"):
        token = target.ids_by_bytes[piece]
        assert target.canonical[token] == token
        assert target.kinds[token] in (Kind.NORMAL, Kind.ADDED)


@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_text_becomes_canonical_ids_that_spell_it(
    name: str, folders: dict[str, Path], draft: Vocabulary, target: Vocabulary
) -> None:
    vocabulary = draft if name.startswith("smol") else target
    tokenizer = Tokenizer.from_file(str(folders[name] / "tokenizer.json"))
    ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    assert vocabulary.canonical[ids].tolist() == ids
    assert b"".join(vocabulary.pieces[token] for token in ids) == TEXT.encode()
    assert TailEncoder(vocabulary, tokenizer)(TEXT.encode()) == ids


def test_the_byte_table_is_small(target: Vocabulary) -> None:
    data = target.to_bytes()
    assert len(data) < 1_600_000
    assert Vocabulary.from_bytes(data).fingerprint == target.fingerprint
