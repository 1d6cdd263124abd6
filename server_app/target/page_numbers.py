"""Numbers of the pages of a store."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


class PageNumbers:
    """Which pages are free, and how many texts use each of the others.

    Attributes:
        uses: of every number given out so far.
    """

    def __init__(self) -> None:
        self.uses: list[int] = []
        self._free: list[int] = []

    @property
    def used(self) -> int:
        """Pages in use."""
        return len(self.uses) - len(self._free)

    def take(self) -> int:
        """A page for one text."""
        if self._free:
            page = heapq.heappop(self._free)  # the lowest: neighbours stay neighbours
        else:
            page = len(self.uses)
            self.uses.append(0)
        self.uses[page] = 1
        return page

    def share(self, pages: Sequence[int]) -> None:
        """One more text uses these."""
        for page in pages:
            self.uses[page] += 1

    def give_back(self, pages: Sequence[int]) -> None:
        """One text less uses these."""
        for page in pages:
            self.uses[page] -= 1
            if not self.uses[page]:
                heapq.heappush(self._free, page)

    def renumber(self) -> list[int]:
        """Use the lowest numbers only; returns the old number of each new one."""
        kept = [page for page, uses in enumerate(self.uses) if uses]
        self.uses = [self.uses[page] for page in kept]
        self._free = []
        return kept
