"""Which pages of cache belong to which text: numbers and counts, no tensors.

Keys and values lie in pages of a few tokens. Every text has a table of its pages, texts
that begin alike share pages by reference count, and a page that is shared is copied before
somebody writes to it. Layers that see the same distance back form a group with pages of its
own: a sliding window needs only the last ones, the others go back while the text grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from edge_sdk.errors import InvalidRequest
from edge_sdk.wire.limits import MAX_DRAFT
from server_app.target.model import PoolFull, TargetSequence
from server_app.target.page_numbers import PageNumbers

# Tokens by which a text can always be shortened: a block may be refused while the next one
# is on its way, and each can be as long as the wire allows.
ROLLBACK = 2 * MAX_DRAFT


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that see the same distance back.

    Attributes:
        window: tokens that a row sees, itself included; None for all.
        cost: memory of a token in these layers, in any unit that all groups share.
    """

    window: int | None
    cost: int = 1


@dataclass(frozen=True, slots=True)
class PageCopy:
    """The first `tokens` tokens of a page, to be copied before a pass writes behind them."""

    source: int
    target: int
    tokens: int


@dataclass(slots=True)
class Reservation:
    """What has to be done to the pages of a group before a pass.

    Attributes:
        fresh: pages that were taken and still hold what others left in them.
        copies: into some of the fresh ones.
    """

    fresh: list[int] = field(default_factory=list)
    copies: list[PageCopy] = field(default_factory=list)


class PageTable:
    """Pages of one text in one group of layers.

    Attributes:
        first: pages at the beginning of the text that were given back.
        pages: numbers of the pages from there on.
    """

    __slots__ = ("first", "pages")

    def __init__(self) -> None:
        self.first = 0
        self.pages: list[int] = []


class PagedSequence(TargetSequence):
    """Cache of one text: a table of pages for every group of layers."""

    __slots__ = ("_length", "tables")

    def __init__(self, groups: int) -> None:
        self._length = 0
        self.tables = [PageTable() for _ in range(groups)]

    @property
    def length(self) -> int:
        return self._length

    @length.setter
    def length(self, length: int) -> None:
        self._length = length


class PageBook:
    """Books of a paged cache.

    Args:
        groups: of layers.
        page: tokens a page.
        limit: most tokens that may be held, where a token counts in full when all groups
            hold it.
        slack: tokens by which a text can always be shortened without losing a window.

    Attributes:
        groups, limit: may be changed at any time (the number and the windows of groups not).
    """

    def __init__(
        self, groups: Sequence[LayerGroup], *, page: int, limit: int, slack: int = 0
    ) -> None:
        self.groups = list(groups)
        self.page = page
        self.limit = limit
        self._slack = slack
        self._pages = [PageNumbers() for _ in groups]
        self._sequences: set[PagedSequence] = set()

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._sequences

    @property
    def used(self) -> int:
        """Tokens for which pages are taken, shared ones once; rounded up to whole pages."""
        return math.ceil(self.cost([pages.used for pages in self._pages]) / self.token_cost)

    @property
    def token_cost(self) -> int:
        """Memory of a token that all groups hold, in the unit of `LayerGroup.cost`."""
        return sum(group.cost for group in self.groups)

    def cost(self, pages: Sequence[int]) -> int:
        """Memory of so many pages of every group, in the unit of `LayerGroup.cost`."""
        counts = zip(self.groups, pages, strict=True)
        return self.page * sum(group.cost * count for group, count in counts)

    def add(self) -> PagedSequence:
        """A new, empty text."""
        sequence = PagedSequence(len(self.groups))
        self._sequences.add(sequence)
        return sequence

    def remove(self, sequence: PagedSequence) -> None:
        """Give the pages of a text back. Idempotent."""
        if sequence in self._sequences:
            self._sequences.remove(sequence)
            self._clear(sequence)

    def room(self, needs: Mapping[PagedSequence, int], *, packed: bool = False) -> list[int]:
        """Pages that a store needs for every text to hold so many tokens in all, by group.

        Args:
            packed: after `renumber`.

        Raises:
            PoolFull: the limit does not allow it.
        """
        more = [0] * len(self.groups)
        for sequence, need in needs.items():
            for number, (_, pages, table) in enumerate(self._parts(sequence)):
                more[number] += self._missing(table, need)
                more[number] += self._shares_end(pages, sequence, table)
        used = [pages.used + extra for pages, extra in zip(self._pages, more, strict=True)]
        if self.cost(used) > self.limit * self.token_cost:
            extra = math.ceil(self.cost(more) / self.token_cost)
            raise PoolFull(
                f"the cache holds {self.used} tokens of at most {self.limit} and the pass needs "
                f"room for {extra} more; close a session or raise the cache size",
                retry_after=1.0,
            )
        if packed:
            return used
        return [max(n, len(pages.uses)) for n, pages in zip(used, self._pages, strict=True)]

    def reserve(self, needs: Mapping[PagedSequence, int]) -> list[Reservation]:
        """Take pages so that every text can hold so many tokens in all.

        Returns:
            what has to be done before the pass, by group.

        Raises:
            PoolFull: the limit does not allow it; nothing was changed.
        """
        self.room(needs)
        todo = [Reservation() for _ in self.groups]
        for sequence, need in needs.items():
            for (_, pages, table), work in zip(self._parts(sequence), todo, strict=True):
                if self._shares_end(pages, sequence, table):
                    source, target = table.pages[-1], pages.take()
                    pages.give_back([source])
                    table.pages[-1] = target
                    work.fresh.append(target)
                    work.copies.append(PageCopy(source, target, sequence.length % self.page))
                taken = [pages.take() for _ in range(self._missing(table, need))]
                table.pages += taken
                work.fresh += taken
        return todo

    def settle(self, sequence: PagedSequence, length: int) -> None:
        """The text now holds `length` tokens: give back what is past them, and what every
        window has left behind."""
        sequence.length = length
        for group, pages, table in self._parts(sequence):
            surplus = table.first + len(table.pages) - -(-length // self.page)
            if surplus > 0:
                pages.give_back(table.pages[-surplus:])
                del table.pages[-surplus:]
            if group.window is not None:
                passed = self._first_page(group.window, length) - table.first
                if passed > 0:
                    pages.give_back(table.pages[:passed])
                    del table.pages[:passed]
                    table.first += passed

    def truncate(self, sequence: PagedSequence, length: int) -> None:
        """Keep the first `length` tokens, or none where a window no longer holds what the
        next token would see.

        Raises:
            InvalidRequest: `length` is negative or above the present length.
        """
        self._check_length(sequence, length)
        if self._whole(sequence, length):
            self.settle(sequence, length)
        else:
            self._clear(sequence)

    def fork(self, sequence: PagedSequence, length: int) -> PagedSequence:
        """A text that begins with the first `length` tokens of another and shares its pages;
        an empty one where a window no longer holds what the next token would see.

        Raises:
            InvalidRequest: `length` is negative or above the present length.
        """
        self._check_length(sequence, length)
        other = self.add()
        if not self._whole(sequence, length):
            return other
        end = -(-length // self.page)
        for (_, pages, mine), theirs in zip(self._parts(other), sequence.tables, strict=True):
            mine.first = theirs.first
            mine.pages = theirs.pages[: max(0, end - theirs.first)]
            pages.share(mine.pages)
        self.settle(other, length)
        return other

    def renumber(self, group: int) -> list[int]:
        """Move the pages of a group to the lowest numbers.

        Returns:
            old number of each page, by its new number.
        """
        kept = self._pages[group].renumber()
        new = {old: number for number, old in enumerate(kept)}
        for sequence in self._sequences:
            table = sequence.tables[group]
            table.pages = [new[page] for page in table.pages]
        return kept

    def _missing(self, table: PageTable, need: int) -> int:
        return max(0, -(-need // self.page) - table.first - len(table.pages))

    def _shares_end(self, pages: PageNumbers, sequence: PagedSequence, table: PageTable) -> bool:
        """Whether the next token falls into a page that another text uses too."""
        return bool(sequence.length % self.page) and pages.uses[table.pages[-1]] > 1

    def _first_page(self, window: int, length: int) -> int:
        """First page that a text of so many tokens holds on to."""
        return max(0, length - window + 1 - self._slack) // self.page

    def _whole(self, sequence: PagedSequence, length: int) -> bool:
        return all(
            table.first * self.page <= max(0, length - group.window + 1)
            for group, table in zip(self.groups, sequence.tables, strict=True)
            if group.window is not None
        )

    def _clear(self, sequence: PagedSequence) -> None:
        sequence.length = 0
        for _, pages, table in self._parts(sequence):
            pages.give_back(table.pages)
            table.pages = []
            table.first = 0

    def _parts(
        self, sequence: PagedSequence
    ) -> Iterator[tuple[LayerGroup, PageNumbers, PageTable]]:
        return zip(self.groups, self._pages, sequence.tables, strict=True)

    def _check_length(self, sequence: PagedSequence, length: int) -> None:
        if not 0 <= length <= sequence.length:
            raise InvalidRequest(
                f"cannot keep {length} tokens of a sequence of {sequence.length}", field="length"
            )
