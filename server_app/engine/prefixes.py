"""Prompts that begin alike share the keys and values of what they have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from server_app.engine.session import Session
from server_app.target.model import TargetModel, TargetSequence

BLOCK: Final = 16  # tokens; a shared prefix is a whole number of these


@dataclass(frozen=True, slots=True, eq=False)
class _Offer:
    """What a session's prompt begins with, as it was when it was computed: a model with sliding
    windows gives back what the session itself no longer sees."""

    ids: Sequence[int]
    sequence: TargetSequence
    keys: Sequence[bytes]


class PrefixIndex:
    """Beginnings of prompts by what they say. Engine thread only.

    A key of a block is a hash over everything before it and over the owner, so that nobody
    can learn from the time an answer takes what another owner's prompts are. Prompts that the
    operator declared have the owner "" and are found by everybody.
    """

    def __init__(self, target: TargetModel) -> None:
        self._target = target
        # Every offer of a beginning, the oldest first: one that goes leaves it to the others.
        self._by_key: dict[bytes, dict[_Offer, None]] = {}
        self._by_session: dict[Session, _Offer] = {}

    def __len__(self) -> int:
        return len(self._by_session)

    def __contains__(self, session: Session) -> bool:
        return session in self._by_session

    def add(self, session: Session) -> None:
        """Offer the whole blocks of a session's prompt that its cache holds. Idempotent."""
        if session in self._by_session:
            return
        held = min(len(session.prompt_ids), session.cached) // BLOCK * BLOCK
        sequence = self._target.fork(session.cache(self._target), held)
        ids = session.prompt_ids[: sequence.length]
        offer = _Offer(ids, sequence, list(_keys(session.owner, ids)))
        self._by_session[session] = offer
        for key in offer.keys:
            self._by_key.setdefault(key, {})[offer] = None

    def remove(self, session: Session) -> None:
        """Offer a session's prompt no longer. Idempotent."""
        offer = self._by_session.pop(session, None)
        if offer is None:
            return
        for key in offer.keys:
            offers = self._by_key[key]
            del offers[offer]
            if not offers:
                del self._by_key[key]
        self._target.release(offer.sequence)

    def share(self, owner: str, ids: Sequence[int]) -> TargetSequence | None:
        """A new sequence of the longest beginning of `ids` that is offered; None if there is
        none."""
        best: TargetSequence | None = None
        for name in {owner, ""}:
            found = self._find(name, ids)
            if found is None:
                continue
            sequence = self._target.fork(found[0].sequence, found[1])
            worse = sequence if best is not None and sequence.length <= best.length else best
            best = best if worse is sequence else sequence
            if worse is not None:
                self._target.release(worse)
        if best is not None and not best.length:
            self._target.release(best)
            return None
        return best

    def _find(self, owner: str, ids: Sequence[int]) -> tuple[_Offer, int] | None:
        found: list[_Offer] = []
        for key in _keys(owner, ids):
            offers = self._by_key.get(key)
            if offers is None:
                break
            found.append(next(iter(offers)))
        # The hash finds it; equal ids decide, of the longest beginning first.
        for blocks in range(len(found), 0, -1):
            offer, length = found[blocks - 1], blocks * BLOCK
            if offer.ids[:length] == list(ids[:length]):
                return offer, length
        return None


def _keys(owner: str, ids: Sequence[int]) -> Iterator[bytes]:
    key = hashlib.blake2b(owner.encode(), digest_size=16).digest()
    array = np.asarray(ids, dtype=np.int64)
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        block = array[start : start + BLOCK].tobytes()
        key = hashlib.blake2b(key + block, digest_size=16).digest()
        yield key
