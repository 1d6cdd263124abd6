from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from edge_sdk.errors import InvalidRequest, PromptTooLong, ServerUnavailable
from server_app.target.hugging_face import HuggingFaceTarget
from server_app.target.model import Chunk, PoolFull
from server_app.target.pages import PagedSequence

FAMILIES = ("llama", "qwen3", "mistral", "gemma2", "gemma3")
Recompute = Callable[[list[int], int], torch.Tensor]


@pytest.fixture(params=FAMILIES)
def pair(
    request: pytest.FixtureRequest, tiny_folder: Callable[[str], Path]
) -> tuple[HuggingFaceTarget, Recompute]:
    return load(tiny_folder(request.param))


@pytest.fixture
def llama(tiny_folder: Callable[[str], Path]) -> HuggingFaceTarget:
    return load(tiny_folder("llama"))[0]


def load(folder: Path, **options: Any) -> tuple[HuggingFaceTarget, Recompute]:
    """The target, and the stock model (eager attention, no cache) as the reference."""
    target = HuggingFaceTarget.load(folder, device="cpu", dtype="float32", **options)
    stock = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()

    def recompute(ids: list[int], rows: int) -> torch.Tensor:
        """Logits [rows, V] after each of the last `rows` ids."""
        with torch.inference_mode():
            out = stock(input_ids=torch.tensor([ids]), use_cache=False, logits_to_keep=rows)
            return torch.as_tensor(out.logits[0])

    return target, recompute


def worst_after_random_rounds(
    target: HuggingFaceTarget,
    recompute: Recompute,
    *,
    sequences: int,
    rounds: int,
    prompt: int,
    seed: int,
    ids_below: int,
) -> float:
    """Largest difference to full recompute over rounds of blocks, accepted in part."""
    draw = random.Random(seed)

    def fresh(count: int) -> list[int]:
        return [draw.randrange(ids_below) for _ in range(count)]

    held: list[tuple[PagedSequence, list[int]]] = [
        (target.new_sequence(), []) for _ in range(sequences)
    ]
    worst = 0.0
    for step in range(rounds):
        chunks, texts = [], []
        for sequence, text in held:
            if step and sequences > 1 and draw.random() < 0.3:
                continue  # this one sits the pass out
            new = fresh(draw.randint(1, prompt) if step == 0 else draw.randint(1, 6))
            text += new
            chunks.append(Chunk(sequence, new, draw.randint(0, len(new))))
            texts.append(text)
        for chunk, text, mine in zip(chunks, texts, target.forward(chunks), strict=True):
            assert mine.shape == (chunk.rows, len(target.vocabulary))
            if chunk.rows:
                worst = max(worst, float((mine - recompute(text, chunk.rows)).abs().max()))
            kept = len(text) - draw.randint(0, len(chunk.token_ids))
            target.rollback(chunk.sequence, kept)
            del text[kept:]
    for sequence, text in held:
        assert sequence.length == len(text)
        target.release(sequence)
    return worst


def test_kv_after_random_accepts_and_rejects_equals_full_recompute(
    pair: tuple[HuggingFaceTarget, Recompute],
) -> None:
    # 30 rounds carry the text far past the window of 12 and across it in both directions.
    for seed in range(3):
        worst = worst_after_random_rounds(
            *pair, sequences=1, rounds=30, prompt=20, seed=seed, ids_below=320
        )
        assert worst <= 1e-5


def test_packed_ragged_batches_equal_full_recompute(
    pair: tuple[HuggingFaceTarget, Recompute],
) -> None:
    worst = worst_after_random_rounds(
        *pair, sequences=5, rounds=25, prompt=40, seed=7, ids_below=320
    )
    assert worst <= 1e-5


def test_prefill_in_pieces_and_beside_a_verify_equals_full_recompute(
    pair: tuple[HuggingFaceTarget, Recompute],
) -> None:
    target, recompute = pair
    text = [(7 * i) % 320 for i in range(90)]
    long, short = target.new_sequence(), target.new_sequence()
    target.forward([Chunk(short, text[:3], 1)])
    target.forward([Chunk(long, text[:50], 0), Chunk(short, text[3:7], 4)])
    target.forward([Chunk(long, text[50:70], 0)])
    mine = target.forward([Chunk(short, text[7:8], 1), Chunk(long, text[70:], 20)])
    torch.testing.assert_close(mine[0], recompute(text[:8], 1), rtol=0, atol=1e-5)
    torch.testing.assert_close(mine[1], recompute(text, 20), rtol=0, atol=1e-5)


def test_the_window_is_part_of_the_reference(tiny_folder: Callable[[str], Path]) -> None:
    """The tests above would not see a missing window if the tiny models did not."""
    _, recompute = load(tiny_folder("mistral"))
    text = [(7 * i) % 320 for i in range(80)]
    # Four layers reach back at most 4 * 11 tokens.
    assert torch.equal(recompute(text, 1), recompute([5, *text[1:]], 1))
    assert not torch.equal(recompute(text, 1), recompute([*text[:60], 5, *text[61:]], 1))


@pytest.mark.parametrize("family", ["llama", "gemma3"])  # gemma3 names no base model
def test_only_the_rows_asked_for_go_through_the_output_layer(
    tiny_folder: Callable[[str], Path], family: str
) -> None:
    target = load(tiny_folder(family))[0]
    seen: list[int] = []
    head = target._model.get_output_embeddings()
    hook = head.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[1]))
    first, second = target.new_sequence(), target.new_sequence()
    try:
        (none,) = target.forward([Chunk(first, [1] * 30, 0)])
        target.forward([Chunk(first, [1, 2, 3], 2), Chunk(second, [4] * 9, 1)])
        target.forward([Chunk(first, [5], 1)])
    finally:
        hook.remove()
    assert seen == [0, 3, 1]
    assert none.shape == (0, 320)


def test_runs_in_every_dtype(tiny_folder: Callable[[str], Path]) -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        target = HuggingFaceTarget.load(tiny_folder("gemma3"), device="cpu", dtype=name)
        (logits,) = target.forward([Chunk(target.new_sequence(), [1, 2, 3], 2)])
        assert target.dtype == logits.dtype == dtype


@pytest.mark.parametrize(
    ("token_ids", "rows"),
    [([], 0), ([1], 2), ([1], -1), ([320], 1), ([-1], 1)],
)
def test_wrong_chunks_are_refused(
    llama: HuggingFaceTarget, token_ids: list[int], rows: int
) -> None:
    sequence = llama.new_sequence()
    with pytest.raises(InvalidRequest):
        llama.forward([Chunk(sequence, token_ids, rows)])
    assert sequence.length == 0


def test_wrong_sequences_are_refused(llama: HuggingFaceTarget) -> None:
    sequence = llama.new_sequence()
    with pytest.raises(InvalidRequest, match="twice"):
        llama.forward([Chunk(sequence, [1], 1), Chunk(sequence, [2], 1)])
    llama.forward([Chunk(sequence, [1, 2], 1)])
    with pytest.raises(InvalidRequest, match="cannot keep 3"):
        llama.rollback(sequence, 3)
    llama.release(sequence)
    llama.release(sequence)
    with pytest.raises(InvalidRequest, match="released"):
        llama.forward([Chunk(sequence, [1], 1)])
    with pytest.raises(InvalidRequest, match="released"):
        llama.rollback(sequence, 0)


def test_a_text_longer_than_the_context_is_refused(llama: HuggingFaceTarget) -> None:
    sequence = llama.new_sequence()
    llama.forward([Chunk(sequence, [1] * 250, 0)])
    with pytest.raises(PromptTooLong, match="257 tokens do not fit the context of 256"):
        llama.forward([Chunk(sequence, [1] * 7, 1)])
    llama.forward([Chunk(sequence, [1] * 6, 1)])
    assert sequence.length == 256


def test_a_full_cache_changes_nothing_and_goes_on_after_a_release(
    tiny_folder: Callable[[str], Path],
) -> None:
    # 4 layers x 2 sides x 2 heads x 16 x 4 bytes = 1024 bytes a token
    target, recompute = load(tiny_folder("llama"), cache_bytes=300 * 1024)
    assert target.cache_limit == 288  # whole pages of 16
    text = [(3 * i) % 320 for i in range(140)]
    first, second = target.new_sequence(), target.new_sequence()
    target.forward([Chunk(first, text, 0), Chunk(second, text[:120], 0)])
    assert target.cache_used == 144 + 128
    third = target.new_sequence()
    with pytest.raises(PoolFull, match=r"272 tokens of at most 288 and the pass .* 64 more"):
        target.forward([Chunk(second, text[120:], 1), Chunk(third, text[:40], 1)])
    assert issubclass(PoolFull, ServerUnavailable)
    assert (first.length, second.length, third.length) == (140, 120, 0)
    target.release(first)
    mine = target.forward([Chunk(second, text[120:], 10), Chunk(third, text[:40], 1)])
    torch.testing.assert_close(mine[0], recompute(text, 10), rtol=0, atol=1e-5)
    torch.testing.assert_close(mine[1], recompute(text[:40], 1), rtol=0, atol=1e-5)
    assert target.cache_used == 144 + 48


@pytest.mark.parametrize("error", [RuntimeError("broken"), torch.OutOfMemoryError("no more")])
def test_a_pass_that_fails_changes_nothing(
    tiny_folder: Callable[[str], Path], error: Exception
) -> None:
    """Also where a page was copied for it."""
    target, recompute = load(tiny_folder("gemma3"))
    text = [(3 * i) % 320 for i in range(60)]
    first = target.new_sequence()
    target.forward([Chunk(first, text[:40], 0)])
    second = target.fork(first, 38)
    used = target.cache_used

    def fail(*_: object) -> None:
        raise error

    hook = target._model.model.layers[2].register_forward_pre_hook(fail)
    with pytest.raises(PoolFull if isinstance(error, torch.OutOfMemoryError) else RuntimeError):
        target.forward([Chunk(first, text[40:], 1), Chunk(second, [5] * 30, 1)])
    hook.remove()
    assert (first.length, second.length) == (40, 38)
    assert target.cache_used <= used + 2 * 16
    mine = target.forward([Chunk(second, text[38:], 5), Chunk(first, text[40:], 5)])
    for rows in mine:
        torch.testing.assert_close(rows, recompute(text, 5), rtol=0, atol=1e-5)
    target.release(first)
    target.release(second)
    assert target.cache_used == 0


def test_a_text_gone_wrong_spoils_no_other(tiny_folder: Callable[[str], Path]) -> None:
    target, recompute = load(tiny_folder("llama"))
    text = [(3 * i) % 320 for i in range(20)]
    bad = target.new_sequence()
    weight = target._model.get_input_embeddings().weight
    row = weight[300].clone()
    weight[300] = float("nan")
    (nothing,) = target.forward([Chunk(bad, [300] * 40, 1)])
    assert bool(nothing.isnan().all())
    weight[300] = row
    beside = target.new_sequence()
    target.forward([Chunk(bad, [1], 0), Chunk(beside, text[:12], 0)])
    target.release(bad)
    after = target.new_sequence()  # in the pages of the bad one
    mine = target.forward([Chunk(after, text, 4), Chunk(beside, text[12:], 4)])
    for rows in mine:
        torch.testing.assert_close(rows, recompute(text, 4), rtol=0, atol=1e-5)


def test_a_cache_too_small_for_anything_is_refused(tiny_folder: Callable[[str], Path]) -> None:
    with pytest.raises(InvalidRequest, match="40000 bytes holds 32 tokens of"):
        load(tiny_folder("llama"), cache_bytes=40_000)


def test_warm_up_leaves_nothing_behind(llama: HuggingFaceTarget) -> None:
    llama.warm_up()
    assert llama.cache_used == 0


@pytest.mark.models
@pytest.mark.timeout(600)
def test_gemma_after_random_accepts_and_rejects_equals_full_recompute(gemma_folder: Path) -> None:
    target, recompute = load(gemma_folder)
    window = 512
    worst = worst_after_random_rounds(
        target, recompute, sequences=2, rounds=4, prompt=60, seed=1, ids_below=200_000
    )
    text = [(7919 * i) % 200_000 for i in range(window + 40)]
    sequence = target.new_sequence()
    target.forward([Chunk(sequence, text[: window - 3], 0)])
    for start, kept in ((window - 3, 2), (window - 1, 1), (window, 6)):  # across the window
        (mine,) = target.forward([Chunk(sequence, text[start : start + 6], 6)])
        worst = max(worst, float((mine - recompute(text[: start + 6], 6)).abs().max()))
        target.rollback(sequence, start + kept)
    (mine,) = target.forward([Chunk(sequence, text[window + 6 :], 1)])
    worst = max(worst, float((mine - recompute(text, 1)).abs().max()))
    print(f"largest difference {worst:.1e}")
    assert worst <= 5e-4
