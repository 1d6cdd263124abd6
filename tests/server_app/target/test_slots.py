from __future__ import annotations

import itertools
import random

import pytest
import torch

from edge_sdk.errors import InvalidRequest
from server_app.target.model import PoolFull
from server_app.target.slots import SlotPool, SlotSequence


def write(pool: SlotPool, sequence: SlotSequence, marks: list[float]) -> None:
    """Append tokens whose keys are their marks and whose values are the negatives."""
    pool.reserve({sequence: sequence.length + len(marks)})
    for layer in range(pool.layers):
        keys = torch.tensor(marks)[:, None, None].expand(-1, 2, 3) + layer
        pool.write(layer, sequence.start + sequence.length, keys, -keys)
    sequence.length += len(marks)


def read(pool: SlotPool, sequence: SlotSequence) -> list[float]:
    """Marks of a sequence, checked to be the same in every layer and on both sides."""
    first, last = sequence.start, sequence.start + sequence.length
    marks: list[float] = pool.read(0, first, last)[0][:, 0, 0].tolist()
    for layer in range(pool.layers):
        keys, values = pool.read(layer, first, last)
        expected = torch.tensor(marks)[:, None, None].expand(-1, 2, 3) + layer
        assert torch.equal(keys, expected)
        assert torch.equal(values, -expected)
    return marks


def test_sequences_keep_their_tokens_through_growth_moves_and_compaction() -> None:
    for seed in range(20):
        draw = random.Random(seed)
        pool = SlotPool(2, limit=draw.choice([300, 1500, 4000]))
        held: dict[SlotSequence, list[float]] = {}
        full = 0
        for step in range(300):
            action = draw.random()
            if action < 0.15 or not held:
                held[pool.add()] = []
                continue
            sequence = draw.choice(list(held))
            if action < 0.25:
                pool.remove(sequence)
                del held[sequence]
            elif action < 0.45:
                kept = draw.randint(0, sequence.length)
                pool.truncate(sequence, kept)
                del held[sequence][kept:]
            else:
                marks = [float(step * 1000 + i) for i in range(draw.randint(1, 150))]
                if pool.used + len(marks) > pool.limit:
                    full += 1
                    with pytest.raises(PoolFull):
                        write(pool, sequence, marks)
                else:  # whatever fits must be taken, fragmented or not
                    write(pool, sequence, marks)
                    held[sequence] += marks
            assert pool.slots <= pool.limit
            for other, marks in held.items():
                if marks:
                    assert read(pool, other) == marks
            runs = sorted((s.start, s.start + s.capacity) for s in held if s.capacity)
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(runs))
            assert all(end <= pool.slots for _, end in runs)
        assert full or pool.limit == 4000


def test_one_sequence_grows_in_place() -> None:
    pool = SlotPool(1, limit=10_000)
    sequence = pool.add()
    for step in range(50):
        write(pool, sequence, [float(step)] * 100)
        assert sequence.start == 0


def test_reserving_for_several_is_all_or_nothing() -> None:
    pool = SlotPool(1, limit=100)
    first, second = pool.add(), pool.add()
    write(pool, first, [1.0] * 40)
    before = (first.start, first.capacity, second.capacity)
    with pytest.raises(PoolFull, match="holds 40 tokens of at most 100 and the pass needs 61"):
        pool.reserve({first: 60, second: 41})
    assert (first.start, first.capacity, second.capacity) == before
    pool.reserve({first: 60, second: 40})


def test_removed_slots_are_used_again() -> None:
    pool = SlotPool(1, limit=100)
    for _ in range(5):
        sequence = pool.add()
        write(pool, sequence, [1.0] * 90)
        pool.remove(sequence)
        pool.remove(sequence)
        assert pool.used == 0
        assert sequence not in pool


def test_bytes_per_slot_counts_every_layer_and_both_sides() -> None:
    pool = SlotPool(3, limit=10)
    write(pool, pool.add(), [1.0])
    assert pool.bytes_per_slot == 3 * 2 * 2 * 3 * 4


@pytest.mark.parametrize("length", [-1, 4])
def test_truncating_to_a_wrong_length_is_refused(length: int) -> None:
    pool = SlotPool(1, limit=10)
    sequence = pool.add()
    write(pool, sequence, [1.0, 2.0, 3.0])
    with pytest.raises(InvalidRequest, match="of a sequence of 3"):
        pool.truncate(sequence, length)
    assert sequence.length == 3
