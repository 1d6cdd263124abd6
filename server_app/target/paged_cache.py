"""Keys and values of many texts, on one device, within a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from server_app.target.page_store import PageStore
from server_app.target.pages import ROLLBACK, LayerGroup, PageBook, PagedSequence
from server_app.target.staging import Staging

PAGE = 16  # tokens; on a CPU 16, 32 and 64 cost the same, and the last page is half empty
_FIRST_PAGES = 64


class PagedCache:
    """The books of a paged cache and the tensors that they are about.

    Args:
        windows: of every layer, None where it sees everything.
        limit: most tokens, where a token counts in full when all layers hold it.
        page: tokens a page.
        slack: tokens by which a text can always be shortened without losing a window.

    Attributes:
        windows: as given.
        page: as given.
        group_of: of every layer, its group: layers of one window share their tables.
    """

    def __init__(
        self,
        windows: Sequence[int | None],
        *,
        limit: int,
        page: int = PAGE,
        slack: int = ROLLBACK,
    ) -> None:
        self.windows = tuple(windows)
        self.page = page
        kinds = list(dict.fromkeys(windows))
        self.group_of = [kinds.index(window) for window in windows]
        # Place of every layer in its group's store.
        self._place = [self.group_of[:layer].count(g) for layer, g in enumerate(self.group_of)]
        counts = [self.group_of.count(number) for number in range(len(kinds))]
        groups = [LayerGroup(kind, count) for kind, count in zip(kinds, counts, strict=True)]
        self._book = PageBook(groups, page=page, limit=limit, slack=slack)
        self._stores = [PageStore(count, page=page) for count in counts]

    @property
    def groups(self) -> Sequence[LayerGroup]:
        return self._book.groups

    @property
    def limit(self) -> int:
        """Most tokens that may be held."""
        return self._book.limit

    @property
    def used(self) -> int:
        """Tokens for which pages are taken, see `PageBook.used`."""
        return self._book.used

    @property
    def bytes_held(self) -> int:
        """Memory of the tensors, in bytes."""
        return sum(store.pages * self.page * store.bytes_per_token for store in self._stores)

    @property
    def token_bytes(self) -> int:
        """Bytes of a token that all layers hold; known after one pass."""
        return sum(store.bytes_per_token for store in self._stores)

    def bound(self, memory: int) -> None:
        """Set the limit to what fits into so many bytes. Needs one pass beforehand, which
        shows how large a token is in each layer."""
        self._book.groups = [
            replace(group, cost=store.bytes_per_token)
            for group, store in zip(self._book.groups, self._stores, strict=True)
        ]
        self._book.limit = memory // self._book.token_cost // self.page * self.page

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._book

    def add(self) -> PagedSequence:
        """A new, empty text."""
        return self._book.add()

    def remove(self, sequence: PagedSequence) -> None:
        """Give the pages of a text back. Idempotent."""
        self._book.remove(sequence)

    def truncate(self, sequence: PagedSequence, length: int) -> None:
        """See `PageBook.truncate`."""
        self._book.truncate(sequence, length)

    def fork(self, sequence: PagedSequence, length: int) -> PagedSequence:
        """See `PageBook.fork`."""
        return self._book.fork(sequence, length)

    def reserve(self, needs: Mapping[PagedSequence, int], device: torch.device) -> None:
        """Make room on the device so that every text can hold so many tokens in all.

        Raises:
            PoolFull: the limit does not allow it; nothing was changed.
            torch.OutOfMemoryError: the device does not; no text was changed.
        """
        self._enlarge(self._book.room(needs), needs)
        todo = self._book.reserve(needs)
        if any(work.fresh for work in todo):
            # NOTE: not together with the rest of a pass: if that failed to start, a page that
            # belongs to a text already would not have been copied.
            staging = Staging(device)
            numbers = [staging.put(work.fresh) for work in todo]
            staging.send()
            for store, work, number in zip(self._stores, todo, numbers, strict=True):
                store.prepare(work, staging[number])

    def settle(self, sequence: PagedSequence, length: int) -> None:
        """The text now holds `length` tokens, see `PageBook.settle`."""
        self._book.settle(sequence, length)

    def write(
        self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """See `PageStore.write`."""
        self._stores[self.group_of[layer]].write(self._place[layer], slots, keys, values)

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `PageStore.read`."""
        return self._stores[self.group_of[layer]].read(self._place[layer])

    def _enlarge(self, pages: list[int], needs: Mapping[PagedSequence, int]) -> None:
        if all(n <= store.pages for n, store in zip(pages, self._stores, strict=True)):
            return
        most = self._book.limit * self._book.token_cost
        held = [max(n, store.pages) for n, store in zip(pages, self._stores, strict=True)]
        if self._book.cost(held) > most:
            # What one group needed once is what another needs now.
            for number, store in enumerate(self._stores):
                store.pack(self._book.renumber(number))
            pages = self._book.room(needs, packed=True)
            held = pages
        wished = [
            n if n <= store.pages else max(n, 2 * store.pages, _FIRST_PAGES)
            for n, store in zip(held, self._stores, strict=True)
        ]
        sizes = wished if self._book.cost(wished) <= most else held
        for size, store in zip(sizes, self._stores, strict=True):
            if size > store.pages:
                store.resize(size)
