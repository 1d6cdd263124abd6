"""Which sessions hold keys and values, and who gives them up when memory is short."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from server_app.engine.observer import Observer
from server_app.engine.prefixes import BLOCK, PrefixIndex
from server_app.engine.session import Session
from server_app.target.model import TargetModel

_FREED_SHARE: Final = 1 / 16  # of the limit that one eviction frees, if it can


class Caches:
    """Caches of all sessions, in order of use. Engine thread only.

    A session whose cache was dropped keeps its ids: what it needs is computed again.
    """

    def __init__(self, target: TargetModel, observer: Observer) -> None:
        self._target = target
        self._observer = observer
        self._used: OrderedDict[Session, None] = OrderedDict()
        self._pinned: set[Session] = set()
        self._prefixes = PrefixIndex(target)

    def __len__(self) -> int:
        return len(self._used)

    def use(self, session: Session) -> None:
        """Note a use; a session without a cache begins with what others have in common with it.

        Raises:
            SessionLost: the session was closed.
        """
        if session.cached == 0 and session.length > BLOCK:
            self._share(session)
        session.cache(self._target)
        self._used[session] = None
        self._used.move_to_end(session)

    def filled(self, session: Session) -> None:
        """Offer a session's prompt to others once it is computed."""
        if session.cached >= min(len(session.prompt_ids), session.length - 1) >= BLOCK:
            self._prefixes.add(session)

    def pin(self, session: Session) -> None:
        """Never drop this one; for prompts that the operator declared."""
        self._pinned.add(session)

    def trim(self, session: Session, length: int) -> int:
        """Drop cached tokens past `length`; returns how many are left. The prompt may have
        changed."""
        self._prefixes.remove(session)
        return session.trim_cache(self._target, length)

    def close(self, session: Session) -> None:
        """Give a session's cache back for good."""
        self._forget(session)
        session.close(self._target)

    def make_room(self, but: Collection[Session]) -> bool:
        """Drop the caches that were not used for longest, but none of `but`; False if there is
        nothing to drop."""
        limit = self._target.cache_limit
        enough = max(1, int(limit * _FREED_SHARE))
        freed = 0
        for session in list(self._used):
            if session in but or session in self._pinned:
                continue
            tokens = session.cached
            self._forget(session)
            session.drop_cache(self._target)
            self._observer.cache_evicted(tokens)
            freed += tokens
            if freed >= enough:
                return True
        return freed > 0

    def _share(self, session: Session) -> None:
        # The last token is always fed, since its law is what is asked for.
        ids = session.tokens_from(0, session.length - 1)
        sequence = self._prefixes.share(session.owner, ids)
        if sequence is not None:
            session.drop_cache(self._target)
            session.adopt(sequence)
            self._observer.prefix_shared(sequence.length)

    def _forget(self, session: Session) -> None:
        self._used.pop(session, None)
        self._prefixes.remove(session)
