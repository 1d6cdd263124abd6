from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from edge_sdk.errors import UnsupportedModel
from server_app.target.attention import Segment
from server_app.target.attention_choice import (
    GROUPED,
    AttentionKind,
    attention_kinds,
    choose_attention,
)
from server_app.target.hugging_face import HuggingFaceTarget
from server_app.target.model import Chunk
from server_app.target.paged_cache import PagedCache
from server_app.target.staging import Staging
from server_app.target.varlen_attention import VarlenAttention, varlen_kernel

CPU = torch.device("cpu")


def plain_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:
    """What torch documents of its kernel, one segment and one row at a time."""
    out = []
    left, right = window_size
    assert right == 0
    for number in range(len(cu_seq_q) - 1):
        mine = query[cu_seq_q[number] : cu_seq_q[number + 1]]
        if block_table is None:
            assert cu_seq_k is not None
            keys, values = (s[cu_seq_k[number] : cu_seq_k[number + 1]] for s in (key, value))
        else:
            assert seqused_k is not None
            assert block_table.dtype == seqused_k.dtype == torch.int32
            used = int(seqused_k[number])
            pages = block_table[number].long()
            keys, values = (side[pages].flatten(0, 1)[:used] for side in (key, value))
        assert len(mine) <= max_q
        assert len(keys) <= max_k
        shared = query.shape[1] // key.shape[-2]
        assert enable_gqa == (shared > 1)
        keys, values = (side.repeat_interleave(shared, dim=1) for side in (keys, values))
        for row, one in enumerate(mine):
            last = len(keys) - len(mine) + row
            first = 0 if left < 0 else max(0, last - left)
            scores = torch.einsum("hd,khd->hk", one, keys[first : last + 1]) * scale
            out.append(torch.einsum("hk,khd->hd", scores.softmax(-1), values[first : last + 1]))
    return torch.stack(out)


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_ragged_batches_equal_padded_ones(
    tiny_folder: Callable[[str], Path], family: str, paged: bool
) -> None:
    """The same passes with both, on page tables that forks and rollbacks have shuffled."""
    folder = tiny_folder(family)
    targets = [HuggingFaceTarget.load(folder, device="cpu", dtype="float32") for _ in range(2)]
    kernel = partial(VarlenAttention, paged=paged, kernel=plain_varlen)
    targets[1]._attention = AttentionKind("plain", kernel)
    worst = 0.0
    for seed in range(4):
        draw = random.Random(seed)
        held = [[target.new_sequence() for _ in range(4)] for target in targets]
        for _ in range(6):
            counts = [draw.choice([1, 3, 5, draw.randint(1, 30)]) for _ in held[0]]
            ids = [[draw.randrange(320) for _ in range(count)] for count in counts]
            both = [
                target.forward(
                    [Chunk(s, new, len(new)) for s, new in zip(sequences, ids, strict=True)]
                )
                for target, sequences in zip(targets, held, strict=True)
            ]
            for padded, ragged in zip(*both, strict=True):
                worst = max(worst, float((padded - ragged).abs().max()))
            cuts = [draw.randint(0, min(count, 4)) for count in counts]
            which = draw.randrange(4)
            for target, sequences in zip(targets, held, strict=True):
                for sequence, cut in zip(sequences, cuts, strict=True):
                    target.rollback(sequence, sequence.length - cut)
                fork = target.fork(sequences[which], sequences[which].length)
                target.release(sequences[which])
                sequences[which] = fork
                sequences.append(sequences.pop(which))
        for target, sequences in zip(targets, held, strict=True):
            for sequence in sequences:
                target.release(sequence)
    assert worst <= 1e-5


def arguments_of(paged: bool) -> tuple[dict[str, Any], torch.Tensor, list[list[int]]]:
    """What the kernel is given for segments of 2 and 3 rows behind 9 and 0 tokens, pages of 4
    tokens and a window of 3."""
    cache = PagedCache((3,), limit=64, page=4, slack=0)
    first, second = cache.add(), cache.add()
    cache.reserve({second: 4}, CPU)  # so that the first one's pages do not begin at 0
    cache.reserve({first: 9}, CPU)
    cache.settle(first, 9)
    cache.reserve({first: 11, second: 3}, CPU)
    seen: list[dict[str, Any]] = []

    def record(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **rest: Any) -> Any:
        seen.append(rest | {"key": key})
        return query

    staging = Staging(CPU)
    segments = [Segment(first, 0, 2), Segment(second, 2, 3)]
    attention = VarlenAttention(cache, segments, staging, paged=paged, kernel=record)
    staging.send()
    marks = torch.arange(1.0, 6.0)[None, None, :, None]
    attention.attend(0, marks, marks, marks, scaling=0.5, softcap=None)
    tables = [first.tables[0].pages, second.tables[0].pages]
    return seen[0], cache.read(0)[0], tables


def test_page_tables_lengths_and_slots() -> None:
    made, keys, (first, second) = arguments_of(paged=True)
    assert made["cu_seq_q"].tolist() == [0, 2, 5]
    # Token 7 is the first that token 9 sees: pages 1 and 2 of the text, 4 to 10.
    assert made["block_table"].tolist() == [first, [second[0], 0]]
    assert made["seqused_k"].tolist() == [7, 3]
    assert (made["max_q"], made["max_k"], made["window_size"]) == (3, 7, (2, 0))
    assert made["cu_seq_k"] is None
    assert made["scale"] == 0.5
    assert keys[first[1], 1:3, 0, 0].tolist() == [1, 2]
    assert keys[second[0], :3, 0, 0].tolist() == [3, 4, 5]


def test_gathered_keys_are_what_is_seen() -> None:
    made, _, _ = arguments_of(paged=False)
    assert made["cu_seq_q"].tolist() == [0, 2, 5]
    assert made["cu_seq_k"].tolist() == [0, 4, 7]  # tokens 7 to 10, then 0 to 2
    assert made["key"][:, 0, 0].tolist() == [0, 0, 1, 2, 3, 4, 5]
    assert "block_table" not in made
    assert "seqused_k" not in made


def test_a_kind_that_does_not_work_gives_way_to_the_next() -> None:
    tried: list[AttentionKind] = []

    def check(kind: AttentionKind) -> None:
        tried.append(kind)
        if len(tried) < 3:
            raise UnsupportedModel("no kernel")

    gpu = torch.device("cuda")
    assert choose_attention(gpu, torch.bfloat16, check) is GROUPED
    assert [kind.name for kind in tried] == [k.name for k in attention_kinds(gpu, torch.bfloat16)]
    tried.clear()
    with pytest.raises(UnsupportedModel, match="no kernel"):
        choose_attention(gpu, torch.float32, check)
    assert tried == [GROUPED]
    assert attention_kinds(CPU, torch.bfloat16) == [GROUPED]


def test_a_kernel_that_this_device_lacks_is_a_typed_error(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way down from the fastest kind, on a CPU, where no such kernel exists."""
    kinds = attention_kinds(torch.device("cuda"), torch.bfloat16)
    monkeypatch.setattr("server_app.target.attention_choice.attention_kinds", lambda *_: kinds)
    target = HuggingFaceTarget.load(tiny_folder("gemma2"), device="cpu", dtype="bfloat16")
    assert target._attention is GROUPED
    assert target.cache_used == 0
    monkeypatch.setattr("server_app.target.attention_choice.attention_kinds", lambda *_: kinds[:2])
    with pytest.raises(UnsupportedModel):
        HuggingFaceTarget.load(tiny_folder("llama"), device="cpu", dtype="bfloat16")


def test_torch_has_the_kernel() -> None:
    assert callable(varlen_kernel())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_on_a_gpu_ragged_batches_equal_padded_ones(
    tiny_folder: Callable[[str], Path], family: str
) -> None:
    target = HuggingFaceTarget.load(tiny_folder(family), device="cuda", dtype="bfloat16")
    assert target._attention is not GROUPED
    kinds = (target._attention, GROUPED)
    texts = [[(7 * i + n) % 320 for i in range(length)] for n, length in enumerate((60, 9, 33))]
    rows = []
    for kind in kinds:
        target._attention = kind
        sequences = [target.new_sequence() for _ in texts]
        target.forward([Chunk(s, text[:-5], 0) for s, text in zip(sequences, texts, strict=True)])
        logits = target.forward(
            [Chunk(s, text[-5:], 5) for s, text in zip(sequences, texts, strict=True)]
        )
        rows.append(torch.cat(logits).float())
        for sequence in sequences:
            target.release(sequence)
    assert float((rows[0] - rows[1]).abs().mean() / rows[1].std()) <= 0.05
