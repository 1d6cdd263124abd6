"""Vocabularies and an encoder for toy models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_sdk.chat import Message, plain_rendering
from edge_sdk.vocab import Kind, TokenRole, Vocabulary


def toy_vocabulary(
    pieces: Sequence[bytes],
    *,
    controls: Sequence[TokenRole] = (TokenRole.END_OF_TEXT,),
    unused: int = 0,
) -> Vocabulary:
    """A vocabulary of given pieces, then one control token a role, then unused rows.

    Args:
        pieces: bytes of ids 0, 1, ...; equal pieces are twins.
        controls: roles of the ids after the pieces. A role may come twice.
        unused: padding rows at the end, as real models have.
    """
    roles: dict[TokenRole, tuple[int, ...]] = {}
    for offset, role in enumerate(controls):
        roles[role] = (*roles.get(role, ()), len(pieces) + offset)
    kinds = [Kind.NORMAL] * len(pieces) + [Kind.CONTROL] * len(controls) + [Kind.UNUSED] * unused
    return Vocabulary(
        pieces=(*pieces, *[b""] * (len(controls) + unused)),
        kinds=np.array(kinds, dtype=np.uint8),
        roles=roles,
    )


def toy_byte_vocabulary(
    words: Sequence[bytes] = (),
    *,
    controls: Sequence[TokenRole] = (TokenRole.END_OF_TEXT,),
    unused: int = 0,
) -> Vocabulary:
    """A vocabulary that can write anything: the 256 single bytes (id = byte), then `words`."""
    pieces = [bytes([value]) for value in range(256)]
    return toy_vocabulary([*pieces, *words], controls=controls, unused=unused)


class ToyText:
    """Greedy longest match over the pieces of a vocabulary; bytes that no piece begins with
    are left out. Implements `DraftText`; a toy target encodes with it too."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._begin = list(vocabulary.roles.get(TokenRole.BEGIN, ())[:1])
        self._ids: dict[bytes, int] = {}
        for token_id, (piece, kind) in enumerate(
            zip(vocabulary.pieces, vocabulary.kinds, strict=True)
        ):
            if piece and kind in (Kind.NORMAL, Kind.ADDED, Kind.BYTE):
                self._ids.setdefault(piece, token_id)
        self._longest = max(map(len, self._ids), default=0)

    def prompt(self, text: str) -> list[int]:
        return [*self._begin, *self.tail(text.encode())]

    def chat(self, messages: Sequence[Message]) -> list[int]:
        return self.prompt(plain_rendering(messages))

    def tail(self, data: bytes) -> list[int]:
        ids: list[int] = []
        at = 0
        while at < len(data):
            for length in range(min(self._longest, len(data) - at), 0, -1):
                token_id = self._ids.get(data[at : at + length])
                if token_id is not None:
                    ids.append(token_id)
                    at += length
                    break
            else:
                at += 1
        return ids
