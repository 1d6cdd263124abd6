"""A draft that computes the tokens of one common vocabulary only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from edge_sdk.draft.fields import Fields
from edge_sdk.errors import VocabularyMismatch

if TYPE_CHECKING:
    from edge_sdk.vocab import Alignment


@dataclass(frozen=True, slots=True)
class PrunedHead:
    """The common vocabulary that a draft was exported for: its logits are those of V_C by rank.

    Attributes:
        target: name of the target, for messages.
        target_fingerprint: of the target's vocabulary, SHA-256 (hex).
        pair_id: name of V_C, see `edge_sdk.vocab.pair_id`.
        draft_ids_sha256: SHA-256 (hex) of the draft ids by rank as little-endian int64.
        size: |V_C|.
    """

    target: str
    target_fingerprint: str
    pair_id: str
    draft_ids_sha256: str
    size: int

    @classmethod
    def of(cls, alignment: Alignment, *, target: str) -> Self:
        """The head for a pair.

        Args:
            alignment: V_C.
            target: name of the target, for messages.
        """
        return cls(
            target=target,
            target_fingerprint=alignment.target_fingerprint,
            pair_id=alignment.pair_id,
            draft_ids_sha256=_ids_sha256(alignment),
            size=len(alignment),
        )

    @classmethod
    def read(cls, fields: Fields, width: int) -> Self:
        """Read the object of a manifest.

        Args:
            fields: the object.
            width: V_D.

        Raises:
            ModelFolderInvalid: a field is missing or of another type.
        """
        return cls(
            target=fields.text("target"),
            target_fingerprint=fields.sha256("target_fingerprint"),
            pair_id=fields.sha256("pair_id"),
            draft_ids_sha256=fields.sha256("draft_ids_sha256"),
            size=fields.integer("size", low=1, high=width),
        )

    def check(self, alignment: Alignment) -> None:
        """Compare with the pair at hand.

        Raises:
            VocabularyMismatch: the logits would be those of other tokens.
        """
        again = "export it for this target, or without a target for all"
        if alignment.target_fingerprint != self.target_fingerprint:
            raise VocabularyMismatch(
                f"the draft was exported for the target {self.target} alone (vocabulary "
                f"{self.target_fingerprint[:12]}), and this target has another vocabulary "
                f"({alignment.target_fingerprint[:12]}); {again}"
            )
        if alignment.pair_id != self.pair_id or _ids_sha256(alignment) != self.draft_ids_sha256:
            raise VocabularyMismatch(
                f"the draft was exported with a head for {self.size} tokens that it shared with "
                f"the target {self.target}, and by this version it shares others "
                f"({len(alignment)}); {again}"
            )


def _ids_sha256(alignment: Alignment) -> str:
    return hashlib.sha256(alignment.draft_ids.astype("<i8").tobytes()).hexdigest()
