from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge_sdk.errors import InvalidRequest
from server_app.target.attention import Segment
from server_app.target.grouped_attention import GroupedAttention
from server_app.target.model import PoolFull
from server_app.target.paged_cache import PagedCache
from server_app.target.pages import PagedSequence
from server_app.target.staging import Staging

PAGE = 4
SLACK = 6
LIMIT = 96
WINDOWS = (None, 5, 9, 5)  # of the layers; two of them share a group
HEADS, SIZE = 2, 3
CPU = torch.device("cpu")


class Books:
    """A cache whose tokens are marks, and what every text should hold."""

    def __init__(self, windows: tuple[int | None, ...] = WINDOWS, limit: int = LIMIT) -> None:
        self.cache = PagedCache(windows, limit=limit, page=PAGE, slack=SLACK)
        self.texts: dict[PagedSequence, list[int]] = {}
        self.marks = 0

    def append(self, counts: dict[PagedSequence, int]) -> None:
        """One pass over several texts, written as the attention of a pass writes."""
        self.cache.reserve({s: s.length + count for s, count in counts.items()}, CPU)
        staging = Staging(CPU)
        segments, row = [], 0
        for sequence, count in counts.items():
            segments.append(Segment(sequence, row, count))
            row += count
        slots = GroupedAttention(self.cache, segments, staging)._slots
        staging.send()
        marks = torch.arange(self.marks + 1, self.marks + row + 1)
        self.marks += row
        for layer in range(len(self.cache.windows)):
            keys = marks[:, None, None].expand(-1, HEADS, SIZE).float() + layer / 8
            self.cache.write(layer, staging[slots[self.cache.group_of[layer]]], keys, -keys)
        for segment in segments:
            new = marks[segment.row : segment.row + segment.rows].tolist()
            self.texts[segment.sequence] += new
            self.cache.settle(segment.sequence, segment.end)

    def held(self, sequence: PagedSequence, layer: int) -> list[int]:
        """Marks that the next token would see, checked to be the same on both sides."""
        window, length = self.cache.windows[layer], sequence.length
        first = 0 if window is None else max(0, length - window + 1)
        table = sequence.tables[self.cache.group_of[layer]]
        places = [(table.pages[at // PAGE - table.first], at % PAGE) for at in range(first, length)]
        keys, values = self.cache.read(layer)
        marks = torch.stack([keys[page, place] for page, place in places]) - layer / 8
        assert torch.equal(
            torch.stack([values[page, place] for page, place in places]), -marks - layer / 8
        )
        assert bool((marks == marks[:, :1, :1]).all())
        return [int(mark) for mark in marks[:, 0, 0]]

    def check(self) -> None:
        for sequence, text in self.texts.items():
            assert sequence.length == len(text)
            for layer, window in enumerate(self.cache.windows if text else ()):
                first = 0 if window is None else max(0, len(text) - window + 1)
                if text[first:]:
                    assert self.held(sequence, layer) == text[first:]


class CacheMachine(RuleBasedStateMachine):
    """Texts grow, shrink, fork and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.books = Books()
        self.longest: dict[PagedSequence, int] = {}  # that a text has been

    def pick(self, data: Any) -> PagedSequence:
        texts = list(self.books.texts)
        chosen: int = data.draw(st.integers(0, len(texts) - 1))
        return texts[chosen]

    @precondition(lambda self: len(self.books.texts) < 6)
    @rule()
    def add(self) -> None:
        sequence = self.books.cache.add()
        self.books.texts[sequence] = []
        self.longest[sequence] = 0

    @precondition(lambda self: self.books.texts)
    @rule(data=st.data(), count=st.integers(1, 30), other=st.integers(0, 12))
    def append(self, data: Any, count: int, other: int) -> None:
        counts = {self.pick(data): count}
        if other:
            counts.setdefault(self.pick(data), other)
        before = {s: s.length for s in self.books.texts}
        try:
            self.books.append(counts)
            for sequence in counts:
                self.longest[sequence] = max(self.longest[sequence], sequence.length)
        except PoolFull:
            assert {s: s.length for s in self.books.texts} == before
            needed = sum(-(-(before[s] + c) // PAGE) * PAGE for s, c in counts.items())
            others = sum(-(-n // PAGE) * PAGE for s, n in before.items() if s not in counts)
            assert needed + others > LIMIT  # shared pages and windows only need less

    @precondition(lambda self: self.books.texts)
    @rule(data=st.data(), back=st.integers(0, 40))
    def rollback(self, data: Any, back: int) -> None:
        sequence = self.pick(data)
        length = max(0, sequence.length - back)
        self.books.cache.truncate(sequence, length)
        del self.books.texts[sequence][sequence.length :]
        assert sequence.length in (0, length)
        if length >= self.longest[sequence] - SLACK:
            assert sequence.length == length
        if not sequence.length:
            self.longest[sequence] = 0

    @precondition(lambda self: 0 < len(self.books.texts) < 6)
    @rule(data=st.data(), back=st.integers(0, 40))
    def fork(self, data: Any, back: int) -> None:
        sequence = self.pick(data)
        used = self.books.cache.used
        length = max(0, sequence.length - back)
        fork = self.books.cache.fork(sequence, length)
        assert fork.length in (0, length)
        assert self.books.cache.used == used
        if length >= self.longest[sequence] - SLACK:
            assert fork.length == length
        self.books.texts[fork] = self.books.texts[sequence][: fork.length]
        self.longest[fork] = self.longest[sequence] if fork.length else 0

    @precondition(lambda self: self.books.texts)
    @rule(data=st.data())
    def remove(self, data: Any) -> None:
        sequence = self.pick(data)
        self.books.cache.remove(sequence)
        self.books.cache.remove(sequence)
        del self.books.texts[sequence]
        assert sequence not in self.books.cache

    @invariant()
    def every_text_is_whole(self) -> None:
        self.books.check()

    @invariant()
    def memory_is_bounded(self) -> None:
        cache = self.books.cache
        assert cache.used <= LIMIT
        assert cache.bytes_held <= LIMIT * len(WINDOWS) * 2 * HEADS * SIZE * 4

    def teardown(self) -> None:
        for sequence in list(self.books.texts):
            self.books.cache.remove(sequence)
        assert self.books.cache.used == 0


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
)


def test_a_window_holds_what_it_needs_and_no_more() -> None:
    books = Books((5,), limit=64)
    sequence = books.cache.add()
    books.texts[sequence] = []
    for _ in range(100):
        books.append({sequence: 3})
        books.check()
        fork = books.cache.fork(sequence, max(0, sequence.length - SLACK))
        assert fork.length == max(0, sequence.length - SLACK)
        books.cache.remove(fork)
    assert sequence.length == 300
    assert books.cache.used <= 5 + SLACK + 2 * PAGE
    books.cache.truncate(sequence, 300 - SLACK)
    del books.texts[sequence][300 - SLACK :]
    books.check()
    assert books.cache.fork(sequence, 100).length == 0
    books.cache.truncate(sequence, 100)
    assert (sequence.length, books.cache.used) == (0, 0)


def test_forks_share_pages_until_one_writes() -> None:
    books = Books((None,))
    sequence = books.cache.add()
    books.texts[sequence] = []
    books.append({sequence: 10})
    forks = [books.cache.fork(sequence, 9) for _ in range(3)]
    for fork in forks:
        books.texts[fork] = books.texts[sequence][:9]
    assert books.cache.used == 12
    books.append({sequence: 1, forks[0]: 1, forks[1]: 1, forks[2]: 1})
    books.check()
    assert books.cache.used == 8 + 4 * PAGE
    for one in (sequence, *forks[:2]):
        books.cache.remove(one)
        del books.texts[one]
    books.append({forks[2]: 1})  # the last one writes in place
    books.check()
    assert books.cache.used == 12


def test_what_one_group_no_longer_needs_another_can_have() -> None:
    books = Books((None, 5), limit=40)
    short = [books.cache.add() for _ in range(5)]
    for sequence in short:
        books.texts[sequence] = []
    books.append(dict.fromkeys(short, 8))
    for sequence in short[1:]:
        books.cache.remove(sequence)
        del books.texts[sequence]
    # 60 of 80 token layers are for the first group now; it had at most 40.
    long = books.cache.add()
    books.texts[long] = []
    for _ in range(12):
        books.append({long: 4})
        books.check()
    assert books.cache.bytes_held <= 40 * 2 * 2 * HEADS * SIZE * 4


def test_nothing_of_a_text_that_went_wrong_is_left_in_its_pages() -> None:
    books = Books((None,))
    sequence = books.cache.add()
    books.texts[sequence] = []
    books.append({sequence: 8})
    keys, values = books.cache.read(0)
    keys[:2], values[:2] = float("nan"), float("nan")
    books.cache.remove(sequence)
    del books.texts[sequence]
    other = books.cache.add()
    books.texts[other] = []
    books.append({other: 5})
    assert other.tables[0].pages == [0, 1]
    keys, values = books.cache.read(0)
    assert bool(torch.isfinite(keys[:2]).all() and torch.isfinite(values[:2]).all())


def test_reserving_for_several_is_all_or_nothing() -> None:
    cache = PagedCache((None,), limit=24, page=PAGE)
    first, second = cache.add(), cache.add()
    cache.reserve({first: 8}, CPU)
    cache.settle(first, 8)
    with pytest.raises(PoolFull, match=r"holds 8 tokens of at most 24 and the pass .* 20 more"):
        cache.reserve({first: 16, second: 9}, CPU)
    assert cache.used == 8
    cache.reserve({first: 16, second: 8}, CPU)
    assert cache.used == 24


@pytest.mark.parametrize("length", [-1, 4])
def test_wrong_lengths_are_refused(length: int) -> None:
    cache = PagedCache((None,), limit=8, page=PAGE)
    sequence = cache.add()
    cache.reserve({sequence: 3}, CPU)
    cache.settle(sequence, 3)
    for method in (cache.truncate, cache.fork):
        with pytest.raises(InvalidRequest, match="of a sequence of 3"):
            method(sequence, length)
    assert sequence.length == 3


def test_the_limit_follows_from_bytes() -> None:
    books = Books((None, 5, None))
    sequence = books.cache.add()
    books.texts[sequence] = []
    books.append({sequence: 1})
    books.cache.bound(1000 * 3 * 2 * HEADS * SIZE * 4 + 5)
    assert books.cache.limit == 1000
