"""V_C, the common vocabulary of a target and a draft: tokens that stand for the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from edge_sdk.errors import InvalidRequest, VocabularyMismatch
from edge_sdk.vocab.vocabulary import END_ROLES, Kind, Vocabulary

# Any two vocabularies with all bytes share 256 of them and still no word.
DEFAULT_MINIMUM = 512


@dataclass(frozen=True, eq=False)
class Alignment:
    """V_C, numbered by rank; rank r is the same token on both sides.

    Attributes:
        target_ids: int64 [V_C], target id of each rank, ascending.
        draft_ids: int64 [V_C], draft id of each rank, all different.
        target_size: V.
        draft_size: V_D.
        target_fingerprint: fingerprint of the target vocabulary.
        text_tokens: how many tokens of V_C carry text; the others end it.
    """

    target_ids: NDArray[np.int64]
    draft_ids: NDArray[np.int64]
    target_size: int
    draft_size: int
    target_fingerprint: str
    text_tokens: int

    @classmethod
    def between(cls, *, target: Vocabulary, draft: Vocabulary, minimum: int | None = None) -> Self:
        """V_C of a pair.

        Text matches by the bytes of canonical ids. Tokens that end a text match by role, in
        the order of their roles' ids; if a side lacks a role, its remaining end tokens match
        the other side's remaining ones, since either ends the text. No id is used twice.
        Masked ids stay outside: they carry no bytes and end nothing.

        Args:
            minimum: fewest tokens of text that V_C may have. Default: `DEFAULT_MINIMUM`, or
                half the text tokens of the smaller side where that is less.

        Raises:
            VocabularyMismatch: V_C has fewer tokens of text.
        """
        ours, theirs = target.ids_by_bytes, draft.ids_by_bytes
        text = ours.shared(theirs)
        smaller = min(len(ours), len(theirs))
        wanted = max(1, min(DEFAULT_MINIMUM, smaller // 2)) if minimum is None else minimum
        if len(text) < wanted:
            raise VocabularyMismatch(
                f"the draft shares {len(text)} of its {len(theirs)} text tokens with the target's "
                f"{len(ours)}, at least {wanted} are needed; use a draft whose "
                "tokenizer covers the same text"
            )
        pairs = sorted([*text, *_end_pairs(target, draft)])
        return cls(
            target_ids=_frozen([token for token, _ in pairs]),
            draft_ids=_frozen([token for _, token in pairs]),
            target_size=len(target),
            draft_size=len(draft),
            target_fingerprint=target.fingerprint,
            text_tokens=len(text),
        )

    def __len__(self) -> int:
        return len(self.target_ids)

    @cached_property
    def rank_of_target(self) -> NDArray[np.int64]:
        """Rank of each target id [V]; -1 in V_O."""
        return _ranks(self.target_ids, self.target_size)

    @cached_property
    def rank_of_draft(self) -> NDArray[np.int64]:
        """Rank of each draft id [V_D]; -1 outside V_C."""
        return _ranks(self.draft_ids, self.draft_size)

    @cached_property
    def bitmap(self) -> bytes:
        """V_C over the target's ids, bit i of byte j is id 8 j + i; ceil(V / 8) bytes."""
        bits = np.zeros(self.target_size, dtype=np.uint8)
        bits[self.target_ids] = 1
        return np.packbits(bits, bitorder="little").tobytes()

    @cached_property
    def pair_id(self) -> str:
        """Name of this V_C on its server; see `pair_id`."""
        return pair_id(self.target_fingerprint, self.bitmap)


def pair_id(target_fingerprint: str, bitmap: bytes) -> str:
    """SHA-256 (hex) of the target's fingerprint (64 hex digits) followed by the bitmap."""
    return hashlib.sha256(target_fingerprint.encode("ascii") + bitmap).hexdigest()


def target_ids_from_bitmap(bitmap: bytes, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """V_C's target ids, ascending, from an untrusted bitmap over the target's vocabulary.

    Raises:
        InvalidRequest: wrong length, no id at all, or an id that cannot be in any V_C:
            past the end, masked, not canonical, or a control token that ends no text.
    """
    size = len(vocabulary)
    if len(bitmap) != (size + 7) // 8:
        raise _bad_bitmap(f"is {len(bitmap)} bytes, a vocabulary of {size} needs {(size + 7) // 8}")
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")
    ids = np.flatnonzero(bits).astype(np.int64)
    if ids.size == 0:
        raise _bad_bitmap("names no token")
    if ids[-1] >= size:
        raise _bad_bitmap(f"names id {int(ids[-1])}, ids end at {size - 1}")
    allowed = vocabulary.canonical == np.arange(size)
    allowed &= vocabulary.kinds < Kind.CONTROL
    allowed[list(vocabulary.end_ids)] = True
    wrong = ids[~allowed[ids]]
    if wrong.size:
        raise _bad_bitmap(
            f"names id {int(wrong[0])}, which is masked, the twin of another id, or a control "
            "token that does not end a text"
        )
    ids.setflags(write=False)
    return ids


def _end_pairs(target: Vocabulary, draft: Vocabulary) -> Iterator[tuple[int, int]]:
    ours = {role: list(target.roles.get(role, ())) for role in END_ROLES}
    theirs = {role: list(draft.roles.get(role, ())) for role in END_ROLES}
    first, second = END_ROLES
    steps = [(first, first), (second, second)]
    # A side that has one kind of end only uses it for both.
    lacking = {role for side in (ours, theirs) for role in END_ROLES if not side[role]}
    if lacking:
        steps += [(first, second), (second, first)]
    used_ours: set[int] = set()
    used_theirs: set[int] = set()
    for our_role, their_role in steps:
        left = [token for token in ours[our_role] if token not in used_ours]
        right = [token for token in theirs[their_role] if token not in used_theirs]
        for pair in zip(left, right, strict=False):
            used_ours.add(pair[0])
            used_theirs.add(pair[1])
            yield pair


def _ranks(ids: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    ranks = np.full(size, -1, dtype=np.int64)
    ranks[ids] = np.arange(len(ids))
    ranks.setflags(write=False)
    return ranks


def _frozen(ids: list[int]) -> NDArray[np.int64]:
    array = np.array(ids, dtype=np.int64)
    array.setflags(write=False)
    return array


def _bad_bitmap(what: str) -> InvalidRequest:
    return InvalidRequest(f"the bitmap of the common vocabulary {what}", field="bitmap")
