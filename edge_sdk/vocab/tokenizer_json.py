"""Hugging Face `tokenizer.json` -> `Vocabulary`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edge_sdk.errors import InvalidRequest, ModelFolderInvalid, TokenizerUnsupported
from edge_sdk.vocab.bytetable import MAX_IDS
from edge_sdk.vocab.special_tokens import (
    Claim,
    is_control,
    is_reserved,
    read_claims,
    read_json,
    role_of,
)
from edge_sdk.vocab.token_bytes import Spelling, spelling_of
from edge_sdk.vocab.vocabulary import END_ROLES, Kind, TokenRole, Vocabulary

TOKENIZER_NAME = "tokenizer.json"
_MAX_TOKENIZER_BYTES = 256 << 20


def read_tokenizer(
    path: Path,
    *,
    width: int | None = None,
    roles: Mapping[TokenRole, Sequence[int]] | None = None,
) -> Vocabulary:
    """Vocabulary of a `tokenizer.json`, or of the folder that holds it.

    The bytes of a token follow from the decoder and pre-tokenizer that the file declares.
    Added tokens that are not special are text. Roles come from `roles`, which replace what
    is found for that role, else from the configuration files beside it, then from spellings.

    Args:
        path: file or folder.
        width: how wide the model's logits are; default: as many as there are ids.
        roles: ids by role, the main one first; such ids are control tokens, not text.

    Raises:
        ModelFolderInvalid: the file is missing, cut short or contradicts itself.
        TokenizerUnsupported: tokens have no meaning in bytes, or do not fit `width`.
        InvalidRequest: `roles` names an id that does not exist.
    """
    file = path / TOKENIZER_NAME if path.is_dir() else path
    if not file.is_file():
        raise ModelFolderInvalid(f"{file} does not exist; a model folder needs its tokenizer")
    content = read_json(file, limit=_MAX_TOKENIZER_BYTES)
    reader = _Reader(content, str(file))
    found = reader.roles(read_claims(file.parent), roles or {})
    vocabulary = reader.vocabulary(found)
    return vocabulary if width is None else vocabulary.padded(width)


class _Reader:
    """Spelling, bytes and kind of every id of one file."""

    def __init__(self, content: Mapping[str, Any], where: str) -> None:
        self._where = where
        model = content.get("model")
        if not isinstance(model, Mapping):
            raise self._broken("has no model section")
        spelling = spelling_of(content, where)
        self._names: dict[int, str] = {}
        for token, name in self._model_tokens(model):
            self._name(token, name)
        self._declared: set[int] = set()
        added = self._added(content.get("added_tokens"))
        if not self._names:
            raise self._broken("has no tokens")
        self._size = max(self._names) + 1
        self._ids = {name: token for token, name in self._names.items()}
        self._unknown = self._unknown_of(model)
        self._pieces = [b""] * self._size
        self._kinds = [Kind.UNUSED] * self._size
        for token, name in self._names.items():
            self._pieces[token], self._kinds[token] = self._read(token, name, spelling, added)
        self._find_respelled_bytes()

    def _broken(self, what: str) -> ModelFolderInvalid:
        return ModelFolderInvalid(f"{self._where} {what}; it may be damaged, so fetch it again")

    def _model_tokens(self, model: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        vocab = model.get("vocab")
        if isinstance(vocab, Mapping):
            yield from ((token, name) for name, token in vocab.items())
        elif isinstance(vocab, list):
            for token, entry in enumerate(vocab):
                yield token, entry[0] if isinstance(entry, list) and entry else entry
        else:
            raise self._broken("has a model without a vocabulary")

    def _unknown_of(self, model: Mapping[str, Any]) -> int | None:
        """Id that stands for what the model cannot spell. A BPE model may name any token, but
        only brackets make it one that is not text."""
        unknown = model.get("unk_id")
        if isinstance(unknown, int):
            if unknown not in self._names:
                raise self._broken(f"has unk_id {unknown}, which is no token")
            return unknown
        name = model.get("unk_token")
        if isinstance(name, str) and name[:1] + name[-1:] in ("<>", "[]"):
            return self._ids.get(name)
        return None

    def _name(self, token: Any, name: Any) -> int:
        if isinstance(token, bool) or not isinstance(token, int) or not isinstance(name, str):
            raise self._broken(f"lists token {name!r} with id {token!r}")
        if not 0 <= token < MAX_IDS:
            raise TokenizerUnsupported(
                f"{self._where}: id {token} is outside 0 to {MAX_IDS - 1}, the most ids a "
                "vocabulary may have"
            )
        if self._names.setdefault(token, name) != name:
            raise self._broken(f"gives id {token} to both {self._names[token]!r} and {name!r}")
        return token

    def _added(self, section: Any) -> set[int]:
        if section is None:
            return set()
        if not isinstance(section, list):
            raise self._broken("has added_tokens that are no list")
        added: set[int] = set()
        for entry in section:
            if not isinstance(entry, Mapping):
                raise self._broken(f"has an added token {entry!r}")
            token, name = entry.get("id"), entry.get("content")
            # The added token is what the tokenizer looks for, whatever the model calls the id.
            if isinstance(token, int):
                self._names.pop(token, None)
            found = self._name(token, name)
            added.add(found)
            if entry.get("special"):
                self._declared.add(found)
        return added

    def _read(
        self, token: int, name: str, spelling: Spelling, added: set[int]
    ) -> tuple[bytes, Kind]:
        if not name or is_reserved(name):
            return b"", Kind.UNUSED
        if token in self._declared or is_control(name) or token == self._unknown:
            return b"", Kind.CONTROL
        try:
            if token in added:
                return name.encode("utf-8"), Kind.ADDED
            byte = spelling.fallback(name)
            return (spelling.spell(name), Kind.NORMAL) if byte is None else (byte, Kind.BYTE)
        except UnicodeEncodeError as error:
            raise TokenizerUnsupported(
                f"{self._where}: token {token} is half of a surrogate pair and stands for no bytes"
            ) from error

    def _find_respelled_bytes(self) -> None:
        """Give back their kind to byte-fallback tokens that a conversion spelled as text:
        Gemma's `<0x09>` becomes a second tab, of a lower id than the true one."""
        bytes_seen = [token for token, kind in enumerate(self._kinds) if kind == Kind.BYTE]
        # SentencePiece lays the 256 bytes out in one run.
        first = {token - self._pieces[token][0] for token in bytes_seen}
        if len(first) != 1:
            return
        base = first.pop()
        for token in range(max(base, 0), min(base + 0x80, self._size)):
            if self._pieces[token] == bytes([token - base]):
                self._kinds[token] = Kind.BYTE

    def roles(
        self, claims: Sequence[Claim], explicit: Mapping[TokenRole, Sequence[int]]
    ) -> dict[TokenRole, tuple[int, ...]]:
        """Ids by role; an id ends a text in one way only."""
        found: dict[TokenRole, dict[int, None]] = {role: {} for role in TokenRole}
        settled = {token for role in END_ROLES for token in explicit.get(role, ())}
        for role, token in self._found_roles(claims):
            ends = role in END_ROLES
            if role in explicit or (ends and token in settled):
                continue
            if self._kinds[token] != Kind.CONTROL and not ends:
                continue
            found[role][token] = None
        return {role: tuple(explicit.get(role, ids)) for role, ids in found.items()}

    def _found_roles(self, claims: Sequence[Claim]) -> Iterator[tuple[TokenRole, int]]:
        for claim in claims:
            token = self._claimed(claim)
            if token is not None:
                named = role_of(self._names.get(token, ""))
                yield (named if claim.ends and named in END_ROLES else claim.role), token
        if self._unknown is not None:
            yield TokenRole.UNKNOWN, self._unknown
        for token, name in sorted(self._names.items()):
            role = role_of(name)
            if role is not None and self._kinds[token] == Kind.CONTROL:
                yield role, token

    def _claimed(self, claim: Claim) -> int | None:
        token = self._ids.get(claim.token) if isinstance(claim.token, str) else claim.token
        if token is not None and 0 <= token < self._size:
            return token
        if claim.ends:
            raise ModelFolderInvalid(
                f"{claim.where} names {claim.token!r}, which {self._where} does not have; the two "
                "files belong to different models"
            )
        return None

    def vocabulary(self, roles: Mapping[TokenRole, tuple[int, ...]]) -> Vocabulary:
        for token in (token for ids in roles.values() for token in ids):
            if not 0 <= token < self._size:
                raise InvalidRequest(
                    f"roles name id {token}, the ids of {self._where} end at {self._size - 1}",
                    field="roles",
                )
        return Vocabulary.from_token_bytes(
            self._pieces,
            roles=roles,
            control=self._of(Kind.CONTROL),
            byte_fallback=self._of(Kind.BYTE),
            added=self._of(Kind.ADDED),
            unused=self._of(Kind.UNUSED),
        )

    def _of(self, kind: Kind) -> list[int]:
        return [token for token, found in enumerate(self._kinds) if found == kind]
