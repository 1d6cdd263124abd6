from __future__ import annotations

import random

import pytest

from server_app.target.grouped_attention import padded_batches


def area(shapes: list[tuple[int, int]], batches: list[list[int]]) -> int:
    """Rows times keys that a kernel goes through."""
    return sum(
        len(batch) * max(shapes[n][0] for n in batch) * max(shapes[n][1] for n in batch)
        for batch in batches
    )


def test_verifies_of_similar_texts_attend_together() -> None:
    assert padded_batches([(5, 60 + number) for number in range(16)]) == [list(range(16))]


def test_a_prefill_attends_apart_from_verifies() -> None:
    shapes = [(5, 60), (256, 256), (4, 70), (1, 64)]
    assert padded_batches(shapes) == [[0, 2, 3], [1]]


def test_long_texts_attend_one_by_one() -> None:
    assert padded_batches([(5, 3000)] * 3) == [[0], [1], [2]]


def test_every_segment_attends_once_with_bounded_padding() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        shapes = []
        for _ in range(draw.randint(1, 64)):
            rows = draw.choice([1, 5, draw.randint(1, 9), draw.randint(10, 300)])
            shapes.append((rows, rows + draw.choice([0, 64, draw.randint(0, 4000)])))
        batches = padded_batches(shapes)
        assert sorted(n for batch in batches for n in batch) == list(range(len(shapes)))
        assert all(batch == sorted(batch) for batch in batches)
        own = sum(rows * keys for rows, keys in shapes)
        assert area(shapes, batches) <= 1.5 * own + 512 * len(shapes)


@pytest.mark.parametrize("keys", [40, 400, 2000])
def test_twice_the_texts_cost_twice(keys: int) -> None:
    once, twice = [(5, keys)] * 32, [(5, keys)] * 64
    assert area(twice, padded_batches(twice)) == 2 * area(once, padded_batches(once))
