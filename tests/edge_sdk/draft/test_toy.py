from __future__ import annotations

import time

import numpy as np
import pytest

from edge_sdk.chat import Message, plain_rendering
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.draft.toy_table import ToyTable
from edge_sdk.draft.toy_text import ToyText, toy_byte_vocabulary, toy_vocabulary
from edge_sdk.errors import InvalidRequest, ModelError
from edge_sdk.vocab import Kind, TokenRole


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def test_first_order_laws_follow_the_last_id() -> None:
    laws = np.array([[1, 1, 2], [0, 1, 0], [3, 1, 0], [1, 1, 1]], dtype=float)
    table = ToyTable.from_laws(laws)
    for ids, row in [([], 0), ([0], 1), ([2, 1], 2), ([0, 1, 2], 3)]:
        assert softmax(table.logits(ids)) == pytest.approx(laws[row] / laws[row].sum())


def test_second_order_laws_follow_the_last_two_ids_in_order() -> None:
    laws = np.random.default_rng(0).random((3, 3, 2))
    table = ToyTable.from_laws(laws)
    for last in (-1, 0, 1):
        for before in (-1, 0, 1):
            ids = [i for i in (before, last) if i >= 0]
            if last < 0 <= before:
                continue
            expected = laws[last + 1, before + 1]
            assert softmax(table.logits(ids)) == pytest.approx(expected / expected.sum())


@pytest.mark.parametrize(
    "laws",
    [np.ones((3, 3)), np.ones((2, 3)), np.zeros((3, 2)), [[-1, 2], [1, 1], [1, 1]], 1.0],
    ids=["square", "short", "zero row", "negative", "scalar"],
)
def test_laws_that_are_none(laws: object) -> None:
    with pytest.raises(InvalidRequest):
        ToyTable.from_laws(laws)  # type: ignore[arg-type]


def test_random_tables_repeat_by_seed_and_depend_on_their_order() -> None:
    one, two = ToyTable.random(3, 40), ToyTable.random(3, 40, 2)
    assert np.array_equal(one.logits([5, 9]), ToyTable.random(3, 40).logits([7, 9]))
    assert not np.array_equal(one.logits([9]), ToyTable.random(4, 40).logits([9]))
    assert not np.array_equal(two.logits([5, 9]), two.logits([7, 9]))


@pytest.mark.parametrize("order", [0, 3])
def test_only_orders_one_and_two(order: int) -> None:
    with pytest.raises(InvalidRequest):
        ToyTable.random(0, 4, order)


def test_blending_moves_acceptance_linearly() -> None:
    target, other = ToyTable.random(1, 50), ToyTable.random(2, 50)
    apart = 1.0 - target.acceptance(other)
    for similarity in (0.0, 0.3, 1.0):
        draft = target.blended(other, similarity)
        assert draft.acceptance(target) == pytest.approx(1.0 - (1.0 - similarity) * apart)
    with pytest.raises(InvalidRequest):
        target.blended(other, 1.5)
    with pytest.raises(InvalidRequest):
        target.blended(ToyTable.random(2, 51), 0.5)


@pytest.mark.parametrize("order", [1, 2])
def test_projection_keeps_the_law_of_the_same_text(order: int) -> None:
    table = ToyTable.random(5, 6, order)
    source_ids = [4, -1, 0, 3]
    projected = table.projected(source_ids)
    held = [2, 0, 3]
    there = table.logits([source_ids[i] for i in held])
    here = projected.logits(held)
    assert [here[k] for k in (0, 2, 3)] == [there[source_ids[k]] for k in (0, 2, 3)]
    assert here[1] == -2.0
    with pytest.raises(InvalidRequest):
        table.projected([0, 6])


def test_bias_takes_ids_out_of_the_law() -> None:
    table = ToyTable.random(5, 6).biased({2: float("-inf"), 3: 1.0})
    assert np.all(table.laws()[:, 2] == 0.0)
    assert np.allclose(table.rows[:, 3], ToyTable.random(5, 6).rows[:, 3] + 1.0)


def test_toy_vocabulary_has_roles_and_padding() -> None:
    vocabulary = toy_vocabulary(
        [b"a", b"bc"], controls=[TokenRole.END_OF_TEXT, TokenRole.END_OF_TURN], unused=2
    )
    assert vocabulary.pieces == (b"a", b"bc", b"", b"", b"", b"")
    assert vocabulary.end_ids == {2, 3}
    assert vocabulary.kinds.tolist() == [Kind.NORMAL] * 2 + [Kind.CONTROL] * 2 + [Kind.UNUSED] * 2


def test_longest_match_takes_the_lowest_twin_and_drops_unknown_bytes() -> None:
    text = ToyText(toy_vocabulary([b"a", b"ab", b"ab", b"c"]))
    assert text.tail(b"aab?cab") == [0, 1, 3, 1]


def test_byte_vocabulary_writes_anything() -> None:
    vocabulary = toy_byte_vocabulary([b" the"], controls=[TokenRole.BEGIN])
    text = ToyText(vocabulary)
    ids = text.prompt("on the é")
    assert ids[0] == 257
    assert b"".join(vocabulary.pieces[i] for i in ids) == "on the é".encode()
    assert 256 in ids
    messages = [Message("user", "hi")]
    assert text.chat(messages) == text.prompt(plain_rendering(messages))
    assert text.tail(b"\xff the") == [255, 256]


def test_draft_follows_appended_and_rewound_ids() -> None:
    vocabulary = toy_vocabulary([b"a", b"b", b"c"])
    table = ToyTable.random(9, 4, 2)
    draft = ToyDraft.from_table(vocabulary, table, context=5)
    draft.append([0, 1, 2])
    assert np.allclose(draft.next_logits(), table.logits([1, 2]))
    draft.rewind(2)
    draft.append([np.int64(3)])  # type: ignore[list-item]
    assert draft.length == 3
    assert np.allclose(draft.next_logits(), table.logits([1, 3]))
    draft.reset()
    assert draft.length == 0


def test_draft_refuses_what_does_not_fit() -> None:
    draft = ToyDraft.random(1, toy_vocabulary([b"a", b"b"]), context=3)
    with pytest.raises(InvalidRequest, match="no id"):
        draft.next_logits()
    for ids in ([3], [-1], ["a"], [1.0], [0, 1, 0, 1]):
        with pytest.raises(InvalidRequest):
            draft.append(ids)  # type: ignore[arg-type]
        assert draft.length == 0
    draft.append([0])
    for length in (2, -1):
        with pytest.raises(InvalidRequest, match="rewind"):
            draft.rewind(length)
    with pytest.raises(InvalidRequest, match="4 ids"):
        ToyDraft.from_table(toy_vocabulary([b"a", b"b"]), ToyTable.random(1, 4))
    draft.close()
    draft.close()
    with pytest.raises(ModelError, match="closed"):
        draft.next_logits()


def test_returned_logits_may_be_written() -> None:
    table = ToyTable.random(1, 4)
    draft = ToyDraft.from_table(toy_vocabulary([b"a", b"b", b"c"]), table)
    draft.append([0])
    expected = table.logits([0]).astype(np.float32)
    draft.next_logits()[:] = 0.0
    assert np.array_equal(draft.next_logits(), expected)


def test_a_toy_step_is_cheap() -> None:
    draft = ToyDraft.random(1, toy_byte_vocabulary([b" the"] * 43), order=2)
    began = time.process_time()
    for _ in range(1000):
        draft.append([5])
        draft.next_logits()
        draft.rewind(draft.length - 1)
    assert time.process_time() - began < 1.0
