"""A vocabulary as bytes: what every token of a model stands for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


class Kind(IntEnum):
    """What an id is."""

    NORMAL = 0  # a piece of text
    BYTE = 1  # byte fallback: one byte, the twin of a normal piece or not
    ADDED = 2  # added token whose text is ordinary text
    CONTROL = 3  # special token: no text, may have a role
    UNUSED = 4  # padding row or reserved id; masked in every method


class TokenRole(StrEnum):
    """What a control token is for. Tokens of two vocabularies match by role, never by spelling."""

    BEGIN = "begin"
    END_OF_TEXT = "end_of_text"
    END_OF_TURN = "end_of_turn"
    PADDING = "padding"
    UNKNOWN = "unknown"


END_ROLES: tuple[TokenRole, ...] = (TokenRole.END_OF_TEXT, TokenRole.END_OF_TURN)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Tokens of a model by id.

    Attributes:
        pieces: bytes of each id, as many as the model's logits are wide; empty for
            `CONTROL` and `UNUSED` ids.
        kinds: uint8 [V], values of `Kind`.
        roles: ids by role, the main one first.
    """

    pieces: tuple[bytes, ...]
    kinds: NDArray[np.uint8]
    roles: Mapping[TokenRole, tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Ids that end a text."""
        return frozenset(i for role in END_ROLES for i in self.roles.get(role, ()))

    @cached_property
    def masked_ids(self) -> NDArray[np.int64]:
        """Ids that no law may contain: unused ids, padding, the unknown token."""
        raise NotImplementedError

    @cached_property
    def canonical(self) -> NDArray[np.int64]:
        """Canonical id of each id [V]: the lowest `NORMAL` (else `ADDED`, else `BYTE`) id
        with the same bytes; ids without bytes stand for themselves."""
        raise NotImplementedError

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of `to_bytes()` before compression."""
        return hashlib.sha256(self.to_bytes(compressed=False)).hexdigest()

    def to_bytes(self, *, compressed: bool = True) -> bytes:
        """The byte table as it crosses the wire (deterministic)."""
        raise NotImplementedError

    @classmethod
    def from_bytes(cls, data: bytes) -> Vocabulary:
        """Read an untrusted compressed byte table.

        Raises:
            ProtocolError: not a byte table, or larger than the protocol allows.
        """
        raise NotImplementedError
