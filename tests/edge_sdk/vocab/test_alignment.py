from __future__ import annotations

import hashlib
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_sdk.errors import InvalidRequest, VocabularyMismatch
from edge_sdk.vocab import (
    END_ROLES,
    Alignment,
    Kind,
    TokenRole,
    Vocabulary,
    pair_id,
    target_ids_from_bitmap,
)

TEXT, TURN = TokenRole.END_OF_TEXT, TokenRole.END_OF_TURN


def check_sound(aligned: Alignment, target: Vocabulary, draft: Vocabulary) -> None:
    """Whatever the pair: bytes agree, both ways are injective, no mask, no twin."""
    ours, theirs = aligned.target_ids.tolist(), aligned.draft_ids.tolist()
    assert ours == sorted(set(ours))
    assert len(set(theirs)) == len(theirs)
    assert not set(ours) & set(target.masked_ids.tolist())
    assert not set(theirs) & set(draft.masked_ids.tolist())
    for rank, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        assert target.pieces[our] == draft.pieces[their]
        if target.pieces[our] == b"":
            assert our in target.end_ids
            assert their in draft.end_ids
        assert target.canonical[our] == our
        assert draft.canonical[their] == their
        assert aligned.rank_of_target[our] == rank
        assert aligned.rank_of_draft[their] == rank
    assert np.count_nonzero(aligned.rank_of_target >= 0) == len(ours)
    assert np.count_nonzero(aligned.rank_of_draft >= 0) == len(ours)


def check_complete(aligned: Alignment, target: Vocabulary, draft: Vocabulary) -> None:
    """No byte string that both can say is left out."""
    shared = set(filter(None, target.pieces)) & set(filter(None, draft.pieces))
    assert {target.pieces[i] for i in aligned.target_ids} - {b""} == shared
    assert aligned.text_tokens == len(shared)


def vocabularies() -> st.SearchStrategy[Vocabulary]:
    piece = st.binary(min_size=1, max_size=2).map(lambda b: bytes(x & 0xC3 for x in b))
    entry = st.one_of(
        st.tuples(st.just(Kind.NORMAL), piece),
        st.tuples(st.just(Kind.ADDED), piece),
        st.tuples(st.just(Kind.BYTE), piece.map(lambda b: b[:1])),
        st.tuples(st.sampled_from([Kind.CONTROL, Kind.UNUSED]), st.just(b"")),
    )

    @st.composite
    def build(draw: st.DrawFn) -> Vocabulary:
        entries = draw(st.lists(entry, min_size=1, max_size=24))
        controls = [i for i, (kind, _) in enumerate(entries) if kind == Kind.CONTROL]
        roles: dict[TokenRole, tuple[int, ...]] = {}
        if controls:
            some = st.lists(st.sampled_from(controls), unique=True, max_size=3).map(tuple)
            roles = draw(st.dictionaries(st.sampled_from(list(TokenRole)), some))
        kinds = np.array([kind for kind, _ in entries], dtype=np.uint8)
        return Vocabulary(tuple(piece for _, piece in entries), kinds, roles)

    return build()


@given(vocabularies(), vocabularies())
@settings(max_examples=300)
def test_generated_pairs_are_sound_and_complete(target: Vocabulary, draft: Vocabulary) -> None:
    aligned = Alignment.between(target=target, draft=draft, minimum=0)
    check_sound(aligned, target, draft)
    check_complete(aligned, target, draft)
    if len(aligned):
        named = target_ids_from_bitmap(aligned.bitmap, target)
        np.testing.assert_array_equal(named, aligned.target_ids)


@given(vocabularies(), vocabularies())
def test_ends_match_by_role_first(target: Vocabulary, draft: Vocabulary) -> None:
    aligned = Alignment.between(target=target, draft=draft, minimum=0)
    pairs = dict(zip(aligned.target_ids.tolist(), aligned.draft_ids.tolist(), strict=True))
    ours, theirs = (side.roles.get(TEXT, ()) for side in (target, draft))
    if ours and theirs:
        assert pairs[ours[0]] == theirs[0]
    for our, their in pairs.items():
        if our in target.end_ids:
            assert their in draft.end_ids


def test_mistral_pairs(sentencepiece: Vocabulary, tekken: Vocabulary) -> None:
    for target, draft in permutations([sentencepiece, tekken]):
        aligned = Alignment.between(target=target, draft=draft)
        check_sound(aligned, target, draft)
        check_complete(aligned, target, draft)
        assert len(aligned) == aligned.text_tokens + 1


def test_a_vocabulary_matches_itself(sentencepiece: Vocabulary, tekken: Vocabulary) -> None:
    for vocabulary in (sentencepiece, tekken):
        aligned = Alignment.between(target=vocabulary, draft=vocabulary)
        np.testing.assert_array_equal(aligned.target_ids, aligned.draft_ids)
        assert aligned.text_tokens == len(vocabulary.ids_by_bytes)


def test_every_ascii_piece_of_mistral_meets_its_normal_id(
    sentencepiece: Vocabulary, tekken: Vocabulary
) -> None:
    aligned = Alignment.between(target=sentencepiece, draft=tekken)
    wanted = {
        sentencepiece.pieces[i]: i
        for i in np.flatnonzero(sentencepiece.kinds == Kind.NORMAL).tolist()
    }
    checked = 0
    for token, piece in enumerate(tekken.pieces):
        if piece in wanted and all(0x20 <= byte < 0x7F for byte in piece):
            rank = aligned.rank_of_draft[token]
            assert aligned.target_ids[rank] == wanted[piece]
            checked += 1
    assert checked > 15_000


def test_digits_never_meet_their_byte_twins() -> None:
    digits = [str(digit).encode() for digit in range(10)]
    target = Vocabulary.from_token_bytes([*digits, *digits], byte_fallback=range(10))
    draft = Vocabulary.from_token_bytes(digits)
    aligned = Alignment.between(target=target, draft=draft, minimum=1)
    assert aligned.target_ids.tolist() == list(range(10, 20))
    assert aligned.draft_ids.tolist() == list(range(10))


def test_a_letter_is_not_the_byte_with_its_number() -> None:
    letter = "Í".encode()
    target = Vocabulary.from_token_bytes([letter, b"\xcd", b"a"], byte_fallback=[1])
    draft = Vocabulary.from_token_bytes([b"a", b"\xcd"])
    aligned = Alignment.between(target=target, draft=draft, minimum=1)
    assert aligned.target_ids.tolist() == [1, 2]
    assert aligned.draft_ids.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("ours", "theirs", "pairs"),
    [
        ({TEXT: [1], TURN: [2]}, {TEXT: [2], TURN: [1]}, {1: 2, 2: 1}),
        ({TEXT: [1], TURN: [2]}, {TEXT: [1]}, {1: 1}),
        ({TEXT: [1], TURN: [2]}, {TURN: [1]}, {2: 1}),
        ({TEXT: [1]}, {TURN: [3]}, {1: 3}),
        ({TURN: [1]}, {TEXT: [3]}, {1: 3}),
        ({TEXT: [1]}, {TEXT: [2], TURN: [1]}, {1: 2}),
        ({TEXT: [3, 1], TURN: [2]}, {TEXT: [1, 2, 3]}, {3: 1, 1: 2, 2: 3}),
        ({TEXT: [1], TURN: [1]}, {TEXT: [1], TURN: [2]}, {1: 1}),
        ({TEXT: [1, 3], TURN: [2]}, {TEXT: [1], TURN: [2, 3]}, {1: 1, 2: 2}),
        ({TokenRole.BEGIN: [1]}, {TokenRole.BEGIN: [1]}, {}),
        ({}, {TEXT: [1]}, {}),
    ],
)
def test_roles(
    ours: dict[TokenRole, list[int]], theirs: dict[TokenRole, list[int]], pairs: dict[int, int]
) -> None:
    pieces = [b"a", b"", b"", b""]
    target = Vocabulary.from_token_bytes(pieces, roles=ours)
    draft = Vocabulary.from_token_bytes(pieces, roles=theirs)
    aligned = Alignment.between(target=target, draft=draft, minimum=1)
    found = dict(zip(aligned.target_ids.tolist(), aligned.draft_ids.tolist(), strict=True))
    assert found == {0: 0, **pairs}


def test_padding_that_also_ends_the_text_is_matched_and_other_padding_is_not() -> None:
    reused = Vocabulary.from_token_bytes(
        [b"a", b""], roles={TEXT: [1], TokenRole.PADDING: [1], TokenRole.UNKNOWN: [1]}
    )
    apart = Vocabulary.from_token_bytes([b"a", b"", b""], roles={TEXT: [1], TokenRole.PADDING: [2]})
    aligned = Alignment.between(target=apart, draft=reused, minimum=1)
    assert aligned.target_ids.tolist() == [0, 1]


def test_bitmap_and_pair_id_are_what_the_wire_says() -> None:
    target = Vocabulary.from_token_bytes([b"%d" % i for i in range(11)])
    draft = Vocabulary.from_token_bytes([b"0", b"3", b"9", b"10"])
    aligned = Alignment.between(target=target, draft=draft, minimum=1)
    assert aligned.bitmap == bytes([0b0000_1001, 0b0000_0110])
    text = target.fingerprint.encode("ascii") + aligned.bitmap
    assert aligned.pair_id == hashlib.sha256(text).hexdigest()
    assert pair_id(target.fingerprint, aligned.bitmap) == aligned.pair_id


def test_too_little_in_common_is_refused_with_numbers() -> None:
    target = Vocabulary.from_token_bytes([b"%d" % i for i in range(1000)])
    draft = Vocabulary.from_token_bytes([b"x%d" % i for i in range(500)] + [b"1", b"2", b"3"])
    with pytest.raises(VocabularyMismatch, match=r"shares 3 of its 503 .* 1000, at least 251"):
        Alignment.between(target=target, draft=draft)
    assert len(Alignment.between(target=target, draft=draft, minimum=3)) == 3
    with pytest.raises(VocabularyMismatch, match="at least 4"):
        Alignment.between(target=target, draft=draft, minimum=4)


def test_single_bytes_alone_are_too_little_for_large_vocabularies() -> None:
    single = [bytes([value]) for value in range(256)]
    target = Vocabulary.from_token_bytes([*single, *(b"t%d" % i for i in range(2000))])
    draft = Vocabulary.from_token_bytes([*single, *(b"d%d" % i for i in range(2000))])
    with pytest.raises(VocabularyMismatch, match="shares 256 of its 2256"):
        Alignment.between(target=target, draft=draft)


def test_large_vocabularies_need_words_in_common_not_half_of_them() -> None:
    shared = [b"s%d" % i for i in range(512)]
    target = Vocabulary.from_token_bytes([*shared, *(b"t%d" % i for i in range(2000))])
    draft = Vocabulary.from_token_bytes([*shared, *(b"d%d" % i for i in range(2000))])
    assert len(Alignment.between(target=target, draft=draft)) == 512


def test_disjoint_vocabularies_are_refused_even_when_ends_match() -> None:
    target = Vocabulary.from_token_bytes([b"a", b""], roles={TEXT: [1]})
    draft = Vocabulary.from_token_bytes([b"b", b""], roles={TEXT: [1]})
    with pytest.raises(VocabularyMismatch, match="shares 0 of its 1"):
        Alignment.between(target=target, draft=draft)


def test_toy_vocabularies_that_mostly_agree_need_no_minimum() -> None:
    target = Vocabulary.from_token_bytes([b"a", b"b", b"c", b"d"])
    draft = Vocabulary.from_token_bytes([b"b", b"c", b"x", b"y"])
    assert len(Alignment.between(target=target, draft=draft)) == 2


BITMAP_TARGET = Vocabulary.from_token_bytes(
    [b"a", b"b", b"b", b"c", b"", b"", b"", b"", b"", b"d"],
    byte_fallback=[1],
    control=[8],
    roles={TEXT: [4], TokenRole.PADDING: [5], TokenRole.BEGIN: [6]},
)


@pytest.mark.parametrize(
    ("bits", "why"),
    [
        (0, "names no token"),
        (1 << 10, "names id 10, ids end at 9"),
        (1 << 15, "names id 15, ids end at 9"),
        (1 | 1 << 1, "names id 1,"),  # twin of a normal piece
        (1 | 1 << 5, "names id 5,"),  # padding
        (1 | 1 << 6, "names id 6,"),  # a control token that ends nothing
        (1 | 1 << 7, "names id 7,"),  # unused
        (1 | 1 << 8, "names id 8,"),  # a control token without a role
    ],
)
def test_bitmaps_that_no_pair_has_are_refused(bits: int, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        target_ids_from_bitmap(bits.to_bytes(2, "little"), BITMAP_TARGET)
    assert caught.value.field == "bitmap"


@pytest.mark.parametrize("size", [0, 1, 3, 1_000_000])
def test_bitmaps_of_another_length_are_refused(size: int) -> None:
    with pytest.raises(InvalidRequest, match=f"is {size} bytes, a vocabulary of 10 needs 2"):
        target_ids_from_bitmap(b"\x01" * size, BITMAP_TARGET)


def test_the_largest_bitmap_that_is_allowed() -> None:
    bits = sum(1 << i for i in (0, 2, 3, 4, 9))
    ids = target_ids_from_bitmap(bits.to_bytes(2, "little"), BITMAP_TARGET)
    assert ids.tolist() == [0, 2, 3, 4, 9]


@given(st.binary(min_size=2, max_size=2))
def test_any_bitmap_is_read_or_refused(bitmap: bytes) -> None:
    try:
        ids = target_ids_from_bitmap(bitmap, BITMAP_TARGET)
    except InvalidRequest:
        return
    assert set(ids.tolist()) <= {0, 2, 3, 4, 9}
    bits = np.zeros(16, np.uint8)
    bits[ids] = 1
    assert np.packbits(bits, bitorder="little").tobytes() == bitmap


def test_end_roles_are_the_only_roles_in_common() -> None:
    pieces = [b"a"] + [b""] * len(TokenRole)
    roles = {role: [place + 1] for place, role in enumerate(TokenRole)}
    both = Vocabulary.from_token_bytes(pieces, roles=roles)
    aligned = Alignment.between(target=both, draft=both, minimum=1)
    wanted = sorted([0, *(roles[role][0] for role in END_ROLES)])
    assert aligned.target_ids.tolist() == wanted
