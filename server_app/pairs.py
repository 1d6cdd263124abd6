"""Registered V_C of drafts with the target."""

from __future__ import annotations

from collections import OrderedDict

from edge_sdk.errors import InvalidRequest, UnknownVocabulary
from edge_sdk.vocab import Vocabulary
from edge_sdk.vocab.alignment import pair_id, target_ids_from_bitmap
from edge_sdk.wire import PairRegistered, RegisterPair
from server_app.methods.base import Pair


class PairStore:
    """Pairs by content, so that clients of one model pair share it; the least recently used go
    when there are too many.

    Args:
        vocabulary: the target's.
        limit: most pairs held.
    """

    def __init__(self, vocabulary: Vocabulary, *, limit: int) -> None:
        self._vocabulary = vocabulary
        self._limit = limit
        self._pairs: OrderedDict[str, Pair] = OrderedDict()

    def register(self, message: RegisterPair) -> PairRegistered:
        """Take the V_C of a draft.

        Raises:
            InvalidRequest: it is for another vocabulary, or the bitmap does not fit.
        """
        fingerprint = self._vocabulary.fingerprint
        if message.target_fingerprint != fingerprint:
            raise InvalidRequest(
                f"the pair is for target vocabulary {message.target_fingerprint[:12]!r}..., but "
                f"this server's is {fingerprint[:12]}...; fetch its byte table again",
                field="target_fingerprint",
            )
        ids = target_ids_from_bitmap(message.bitmap, self._vocabulary)
        name = pair_id(fingerprint, message.bitmap)
        self._pairs[name] = Pair(name, ids)
        self._pairs.move_to_end(name)
        while len(self._pairs) > self._limit:
            self._pairs.popitem(last=False)
        return PairRegistered(pair_id=name, size=len(ids))

    def get(self, name: str) -> Pair:
        """Raises:
        UnknownVocabulary: not registered here.
        """
        pair = self._pairs.get(name)
        if pair is None:
            raise UnknownVocabulary("this vocabulary pair is not registered here; register it")
        self._pairs.move_to_end(name)
        return pair
