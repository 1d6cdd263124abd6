from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from edge_sdk.chat import Message
from edge_sdk.draft.toy_table import ToyTable
from edge_sdk.draft.toy_text import toy_byte_vocabulary, toy_vocabulary
from edge_sdk.errors import InvalidRequest, NoChatTemplate, PromptTooLong
from server_app.target.model import Chunk, PoolFull, Screen
from server_app.target.pages import ROLLBACK
from server_app.target.toy import ToyTarget

VOCABULARY = toy_vocabulary([b"a", b"b", b"ab"])


@pytest.fixture
def toy() -> ToyTarget:
    return ToyTarget.random(3, VOCABULARY, order=2, context=20)


def test_rows_are_the_table_after_each_of_the_last_tokens() -> None:
    table = ToyTable.random(3, len(VOCABULARY), 2)
    target = ToyTarget.from_table(VOCABULARY, table)
    first, second = target.new_sequence(), target.new_sequence()
    none, one = target.forward([Chunk(first, [0, 1, 2], 0), Chunk(second, [2], 1)])
    assert none.shape == (0, 4)
    assert one.dtype == torch.float32
    np.testing.assert_allclose(one, [table.logits([2])], rtol=1e-6)
    (rows,) = target.forward([Chunk(first, [0, 3, 1], 2)])
    text = [0, 1, 2, 0, 3, 1]
    np.testing.assert_allclose(rows, [table.logits(text[:5]), table.logits(text)], rtol=1e-6)


def test_laws_are_exact_in_float64() -> None:
    laws = np.full((5, 4), 0.25)
    laws[1] = [0.7, 0.1, 0.2, 0.0]
    target = ToyTarget.from_laws(VOCABULARY, laws)
    (rows,) = target.forward([Chunk(target.new_sequence(), [3, 0], 2)])
    assert rows.dtype == torch.float64
    np.testing.assert_allclose(torch.softmax(rows, -1), laws[[4, 1]], atol=1e-15)


@pytest.mark.parametrize("temperature", [0.0, 0.001])
def test_rows_are_screened_as_they_are_given(temperature: float) -> None:
    # In float64 id 1 is behind, in float32 it is level with id 0.
    table = ToyTable(np.array([[9.0, 9.0 - 4e-7, 0.0, 0.0]] * 5), 1, np.arange(1, 5), 5)
    target = ToyTarget.from_table(VOCABULARY, table)
    screen = Screen([1, 1], [0.5 - 5e-5] * 2, temperature)
    (rows,) = target.forward([Chunk(target.new_sequence(), [0, 1, 1], 3, screen)])
    assert len(rows) == 3


def test_rollback_forgets_and_release_is_idempotent(toy: ToyTarget) -> None:
    sequence = toy.new_sequence()
    (expected,) = toy.forward([Chunk(sequence, [0, 1], 1)])
    toy.forward([Chunk(sequence, [2, 2, 2], 3)])
    toy.rollback(sequence, 1)
    assert sequence.length == 1
    (again,) = toy.forward([Chunk(sequence, [1], 1)])
    assert torch.equal(expected, again)
    toy.release(sequence)
    toy.release(sequence)
    with pytest.raises(InvalidRequest, match="released"):
        toy.forward([Chunk(sequence, [1], 1)])
    with pytest.raises(InvalidRequest, match="released"):
        toy.rollback(sequence, 0)


@pytest.mark.parametrize(("ids", "rows"), [([], 0), ([1], 2), ([1], -1), ([4], 1), ([-1], 1)])
def test_wrong_chunks_are_refused_and_change_nothing(
    toy: ToyTarget, ids: list[int], rows: int
) -> None:
    good, bad = toy.new_sequence(), toy.new_sequence()
    with pytest.raises(InvalidRequest):
        toy.forward([Chunk(good, [1], 1), Chunk(bad, ids, rows)])
    assert good.length == bad.length == 0


def test_wrong_use_is_refused(toy: ToyTarget) -> None:
    sequence = toy.new_sequence()
    with pytest.raises(InvalidRequest, match="twice"):
        toy.forward([Chunk(sequence, [1], 1), Chunk(sequence, [1], 1)])
    with pytest.raises(InvalidRequest, match="cannot keep 1"):
        toy.rollback(sequence, 1)
    with pytest.raises(PromptTooLong, match="21 tokens do not fit the context of 20"):
        toy.forward([Chunk(sequence, [1] * 21, 1)])
    other = ToyTarget.random(4, VOCABULARY)
    with pytest.raises(InvalidRequest, match="not one of"):
        other.forward([Chunk(sequence, [1], 1)])
    with pytest.raises(InvalidRequest, match="negative"):
        ToyTarget(VOCABULARY, lambda ids: np.zeros(4), seconds_per_pass=-1.0)
    with pytest.raises(InvalidRequest, match="the table has 3 ids and the vocabulary 4"):
        ToyTarget.from_table(VOCABULARY, ToyTable.random(1, 3))


def test_a_pass_takes_its_time_however_many_chunks() -> None:
    target = ToyTarget.random(1, VOCABULARY, seconds_per_pass=0.05)
    chunks = [Chunk(target.new_sequence(), [1, 2], 2) for _ in range(4)]
    begin = time.monotonic()
    target.forward(chunks)
    assert 0.05 <= time.monotonic() - begin < 0.15
    assert target.passes == 1


def test_text_and_chats() -> None:
    assert ToyTarget.random(1, VOCABULARY).encode("abba") == [2, 1, 0]
    target = ToyTarget.random(1, toy_byte_vocabulary())
    assert bytes(target.encode("é")) == "é".encode()
    assert bytes(target.render([Message("user", "Hi")])) == b"User: Hi\n\nAssistant:"
    assert target.has_chat_template
    mute = ToyTarget(VOCABULARY, lambda ids: np.zeros(4), chat=False)
    assert not mute.has_chat_template
    with pytest.raises(NoChatTemplate):
        mute.render([Message("user", "Hi")])


def test_warm_up_leaves_nothing_behind(toy: ToyTarget) -> None:
    toy.warm_up()
    assert not toy._sequences


def test_a_fork_goes_its_own_way() -> None:
    toy = ToyTarget.random(3, VOCABULARY, order=2, cache_limit=10)
    first = toy.new_sequence()
    toy.forward([Chunk(first, [0, 1, 2, 0], 0)])
    second = toy.fork(first, 3)
    assert (second.length, toy.cache_used, toy.cache_limit) == (3, 4, 10)
    toy.rollback(first, 2)
    (mine, other) = toy.forward([Chunk(first, [1], 1), Chunk(second, [3], 1)])
    alone = toy.new_sequence()
    (expected,) = toy.forward([Chunk(alone, [0, 1, 2, 3], 1)])
    assert torch.equal(other, expected)
    toy.release(first)
    assert toy.cache_used == 8
    toy.release(second)
    toy.release(alone)
    assert toy.cache_used == 0
    assert torch.equal(mine, toy.forward([Chunk(toy.new_sequence(), [0, 1, 1], 1)])[0])
    with pytest.raises(InvalidRequest, match="released"):
        toy.fork(first, 0)


def test_a_full_cache_changes_nothing() -> None:
    toy = ToyTarget.random(3, VOCABULARY, cache_limit=10)
    first, second = toy.new_sequence(), toy.new_sequence()
    toy.forward([Chunk(first, [0] * 6, 0)])
    with pytest.raises(PoolFull, match="6 tokens of at most 10 and the pass needs room for 5"):
        toy.forward([Chunk(first, [0] * 3, 0), Chunk(second, [0] * 2, 1)])
    assert (first.length, second.length, toy.cache_used) == (6, 0, 6)
    toy.forward([Chunk(first, [0] * 3, 0), Chunk(second, [0], 1)])
    assert toy.cache_used == 10


def test_a_window_forgets_what_is_far_behind() -> None:
    toy = ToyTarget.random(3, VOCABULARY, window=4)
    sequence = toy.new_sequence()
    toy.forward([Chunk(sequence, [0] * 3 * ROLLBACK, 0)])
    assert toy.cache_used == ROLLBACK + 3
    toy.rollback(sequence, 2 * ROLLBACK)
    assert sequence.length == 2 * ROLLBACK
    assert toy.fork(sequence, 2 * ROLLBACK - 1).length == 0
    toy.rollback(sequence, 2 * ROLLBACK - 1)
    assert (sequence.length, toy.cache_used) == (0, 0)
