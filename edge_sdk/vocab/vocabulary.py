"""A vocabulary as bytes: what every token of a model stands for."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from edge_sdk.errors import InvalidRequest, ProtocolError, TokenizerUnsupported
from edge_sdk.vocab import bytetable
from edge_sdk.vocab.piece_index import PieceIndex
from edge_sdk.vocab.pieces import Pieces


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

_ROLE_BY_CODE: tuple[TokenRole, ...] = (
    TokenRole.BEGIN,
    TokenRole.END_OF_TEXT,
    TokenRole.END_OF_TURN,
    TokenRole.PADDING,
    TokenRole.UNKNOWN,
)
_TEXT_BY_RANK = (Kind.NORMAL, Kind.ADDED, Kind.BYTE)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Tokens of a model by id.

    Attributes:
        pieces: bytes of each id, as many as the model's logits are wide; empty for
            `CONTROL` and `UNUSED` ids and for no others. Any sequence may be given; it is kept
            as `Pieces`.
        kinds: uint8 [V], values of `Kind`, read-only.
        roles: ids by role, the main one first.

    Raises:
        InvalidRequest: the three do not fit together.
    """

    pieces: Sequence[bytes]
    kinds: NDArray[np.uint8]
    roles: Mapping[TokenRole, tuple[int, ...]]

    def __post_init__(self) -> None:
        kinds = np.array(self.kinds, dtype=np.uint8)
        kinds.setflags(write=False)
        roles = {
            TokenRole(role): tuple(int(token) for token in ids)
            for role, ids in self.roles.items()
            if len(ids)
        }
        object.__setattr__(self, "pieces", Pieces.of(self.pieces))
        object.__setattr__(self, "kinds", kinds)
        object.__setattr__(self, "roles", MappingProxyType(roles))
        self._check()

    def _check(self) -> None:
        size = len(self.pieces)
        if not 0 < size <= bytetable.MAX_IDS:
            raise _unfit(f"{size} ids are outside 1 to {bytetable.MAX_IDS}")
        if self.kinds.shape != (size,):
            raise _unfit(f"there are {size} pieces but kinds of shape {self.kinds.shape}")
        if int(self.kinds.max()) > max(Kind):
            raise _unfit(f"kind {int(self.kinds.max())} does not exist")
        lengths = self._packed.lengths
        silent = self.kinds >= Kind.CONTROL
        for wrong, why in (
            (silent & (lengths > 0), "is a control or unused token and carries bytes"),
            (~silent & (lengths == 0), "is text and has no bytes"),
            ((self.kinds == Kind.BYTE) & (lengths != 1), "is byte fallback and not one byte"),
            (lengths > bytetable.MAX_PIECE_BYTES, f"exceeds {bytetable.MAX_PIECE_BYTES} bytes"),
        ):
            if wrong.any():
                raise _unfit(f"token {int(np.argmax(wrong))} {why}")
        for role, ids in self.roles.items():
            if len(set(ids)) != len(ids):
                raise _unfit(f"role {role} names an id twice")
            for token in ids:
                if not 0 <= token < size:
                    raise _unfit(f"role {role} names id {token}, ids end at {size - 1}")
                if self.kinds[token] != Kind.CONTROL:
                    raise _unfit(f"role {role} names id {token}, which is not a control token")

    @classmethod
    def from_token_bytes(
        cls,
        pieces: Sequence[bytes],
        *,
        roles: Mapping[TokenRole, Sequence[int]] | None = None,
        control: Collection[int] = (),
        byte_fallback: Collection[int] = (),
        added: Collection[int] = (),
        unused: Collection[int] = (),
    ) -> Self:
        """Vocabulary of plain lists: a piece with bytes is `NORMAL`, one without is `UNUSED`,
        unless the id is named otherwise; ids that have a role are control tokens.

        Raises:
            InvalidRequest: an id does not exist, or the parts do not fit together.
        """
        held = {role: tuple(ids) for role, ids in (roles or {}).items()}
        kinds = np.array([Kind.NORMAL if piece else Kind.UNUSED for piece in pieces], np.uint8)
        named = (
            (Kind.BYTE, byte_fallback),
            (Kind.ADDED, added),
            (Kind.UNUSED, unused),
            (Kind.CONTROL, control),
            (Kind.CONTROL, {token for ids in held.values() for token in ids}),
        )
        for kind, ids in named:
            for token in ids:
                if not 0 <= token < len(pieces):
                    raise _unfit(f"id {token} does not exist, ids end at {len(pieces) - 1}")
                kinds[token] = kind
        silent = kinds >= Kind.CONTROL
        said = (b"" if quiet else piece for piece, quiet in zip(pieces, silent, strict=True))
        return cls(Pieces.of(said), kinds, held)

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Ids that end a text."""
        return frozenset(i for role in END_ROLES for i in self.roles.get(role, ()))

    @cached_property
    def masked_ids(self) -> NDArray[np.int64]:
        """Ids that no law may contain, ascending: unused ids, padding, the unknown token.
        An end token stays allowed even where a model reuses it as padding or unknown token."""
        masked = set(np.flatnonzero(self.kinds == Kind.UNUSED).tolist())
        for role in (TokenRole.PADDING, TokenRole.UNKNOWN):
            masked.update(self.roles.get(role, ()))
        return _frozen(np.array(sorted(masked - self.end_ids), dtype=np.int64))

    @cached_property
    def ids_by_bytes(self) -> PieceIndex:
        """Canonical id of every byte string that a token stands for."""
        own = self.canonical == np.arange(len(self))
        return PieceIndex(self._packed, np.flatnonzero(own & (self.kinds < Kind.CONTROL)))

    @cached_property
    def canonical(self) -> NDArray[np.int64]:
        """Canonical id of each id [V]: the lowest `NORMAL` (else `ADDED`, else `BYTE`) id
        with the same bytes; ids without bytes stand for themselves."""
        ids = np.arange(len(self))
        ranked = np.concatenate([np.flatnonzero(self.kinds == kind) for kind in _TEXT_BY_RANK])
        hashes = self._packed.hashes()[ranked]
        order = np.argsort(hashes, kind="stable")  # so that ranks stay in order within a hash
        equal = np.diff(hashes[order]) == 0
        # Few share their hash with another id, and only they can share their bytes.
        shared = np.zeros(len(order), bool)
        shared[1:] |= equal
        shared[:-1] |= equal
        first: dict[bytes, int] = {}
        for token in ranked[order][shared].tolist():
            ids[token] = first.setdefault(self.pieces[token], token)
        return _frozen(ids)

    @property
    def _packed(self) -> Pieces:
        return Pieces.of(self.pieces)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of `to_bytes()` before compression."""
        return hashlib.sha256(self.to_bytes(compressed=False)).hexdigest()

    def padded(self, width: int) -> Vocabulary:
        """The same tokens, as many as logits are wide.

        Missing rows become `UNUSED`. A tokenizer may name control tokens past the logits
        (Gemma 3's image token on text-only models); the model cannot produce them and they
        are dropped.

        Raises:
            TokenizerUnsupported: a token of text, or one that ends it, lies past the logits.
        """
        size = len(self)
        if width == size:
            return self
        if not 0 < width <= bytetable.MAX_IDS:
            raise TokenizerUnsupported(
                f"logits {width} wide are outside 1 to {bytetable.MAX_IDS}; check the model's "
                "vocab_size"
            )
        if width > size:
            rows = width - size
            kinds = np.concatenate([self.kinds, np.full(rows, Kind.UNUSED, np.uint8)])
            return Vocabulary((*self.pieces, *[b""] * rows), kinds, self.roles)
        beyond = [
            token
            for token in range(width, size)
            if self.kinds[token] < Kind.CONTROL or token in self.end_ids
        ]
        if beyond:
            raise TokenizerUnsupported(
                f"the tokenizer has {size} tokens but the logits are {width} wide and token "
                f"{beyond[0]} lies past them; the tokenizer belongs to another model"
            )
        roles = {role: tuple(i for i in ids if i < width) for role, ids in self.roles.items()}
        return Vocabulary(self.pieces[:width], self.kinds[:width], roles)

    def to_bytes(self, *, compressed: bool = True) -> bytes:
        """The byte table as it crosses the wire; see `bytetable` for the layout.
        Deterministic before compression on every platform."""
        codes = {_ROLE_BY_CODE.index(role): ids for role, ids in self.roles.items()}
        raw = bytetable.pack(self.pieces, self.kinds, codes)
        return bytetable.compress(raw) if compressed else raw

    @classmethod
    def from_bytes(cls, data: bytes) -> Vocabulary:
        """Read an untrusted compressed byte table.

        Raises:
            ProtocolError: not a byte table, or larger than the protocol allows.
        """
        pieces, kinds, codes = bytetable.unpack(bytetable.decompress(data))
        if codes and max(codes) >= len(_ROLE_BY_CODE):
            raise ProtocolError(
                f"the vocabulary's byte table names role {max(codes)}, which this SDK does not "
                "know; the server is newer, so update the SDK"
            )
        try:
            return cls(pieces, kinds, {_ROLE_BY_CODE[code]: ids for code, ids in codes.items()})
        except InvalidRequest as error:
            raise ProtocolError(f"the vocabulary's byte table is wrong: {error}") from error


def _frozen(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    ids.setflags(write=False)
    return ids


def _unfit(what: str) -> InvalidRequest:
    return InvalidRequest(f"not a vocabulary: {what}", field="vocabulary")
