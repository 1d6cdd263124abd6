"""Rows that judge nothing are left out, and no verdict changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.decoding.coins import PrfCoins, Side
from edge_sdk.decoding.grid import GRID
from edge_sdk.decoding.noise import token_keys
from edge_sdk.sampling import Sampling
from edge_sdk.wire import Generation, Verdict, Verify
from server_app.engine.runner import Runner
from server_app.engine.session import Session
from server_app.engine.work import VerifyWork
from server_app.methods.base import Pair, Proposal
from server_app.methods.greedy import GreedyServer
from server_app.methods.registry import server_half
from server_app.methods.rows import Rows
from server_app.methods.speculative import TargetResampleServer
from server_app.target import output_layer
from server_app.target.hugging_face import HuggingFaceTarget
from server_app.target.model import Chunk, Screen, TargetSequence
from server_app.target.output_layer import OutputLayer
from server_app.target.pages import PagedSequence
from server_app.target.screening import Screening

SIZE, HIDDEN = 40_000, 24
BLOCKS, GAMMA = 12, 4
MASKED = [*range(5), 20_000]


def law(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """In float64."""
    row = logits.double().clone()
    row[MASKED] = -torch.inf
    if temperature:
        return torch.softmax(row / temperature, 0)
    return nn.functional.one_hot(row.argmax(), SIZE).double()


def blocks(logits: torch.Tensor, temperature: float, coins: random.Random) -> list[Chunk]:
    """Tokens that are likely, or any, with bounds as coins give them; and one chunk without."""
    sequence: TargetSequence = PagedSequence(1)
    chunks = []
    for number in range(BLOCKS):
        rows = logits[number * (GAMMA + 1) :]
        tokens = [
            int(rows[at].argmax()) if coins.random() < 0.6 else coins.randrange(SIZE)
            for at in range(GAMMA)
        ]
        bounds = [coins.random() * coins.choice([1e-4, 0.01, 0.3, 1.0]) for _ in tokens]
        screen = Screen(tokens, bounds, temperature)
        chunks.append(Chunk(sequence, [0] * (GAMMA + 1), GAMMA + 1, screen))
    chunks.insert(3, Chunk(sequence, [0] * 7, 2))
    return chunks


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("bias", [False, True])
@torch.inference_mode()
def test_every_row_up_to_the_first_refusal_is_there(
    dtype: torch.dtype, temperature: float, bias: bool
) -> None:
    coins = random.Random(7)
    torch.manual_seed(3)
    linear = nn.Linear(HIDDEN, SIZE, bias=bias, dtype=dtype)
    linear.weight.data *= 6
    linear.weight.data[MASKED] *= 8  # would have nearly all of the mass
    layer = OutputLayer(linear, MASKED)
    left_out = 0
    for _ in range(6):
        hidden = torch.randn(1, BLOCKS * (GAMMA + 1) + 2, HIDDEN, dtype=dtype)
        full = layer(hidden)[0].clone()
        # The chunk without a screen stands between the others.
        order = [*range(15), *range(17, len(full))]
        chunks = blocks(full[order], temperature, coins)
        layer.screening = screening = Screening(chunks)
        found = layer(hidden)[0]
        assert len(found) == sum(screening.counts)
        at = kept = 0
        for chunk, count in zip(chunks, screening.counts, strict=True):
            rows = full[at : at + chunk.rows]
            torch.testing.assert_close(found[kept : kept + count], rows[:count])
            at, kept = at + chunk.rows, kept + count
            left_out += chunk.rows - count
            if chunk.screen is None:
                assert count == chunk.rows
                continue
            pairs = zip(rows, chunk.screen.tokens, chunk.screen.refused_up_to, strict=False)
            refused = [
                float(law(row, temperature)[token]) <= (bound if temperature else 0.5)
                for row, token, bound in pairs
            ]
            assert count > refused.index(True) if True in refused else count == chunk.rows
    assert left_out > 6 * BLOCKS


@torch.inference_mode()
def test_few_rows_and_logits_that_are_no_numbers_are_all_computed() -> None:
    layer = OutputLayer(nn.Linear(HIDDEN, SIZE, bias=False), MASKED)
    chunk = Chunk(PagedSequence(1), [0] * 5, 5, Screen([9, 8, 7, 6], [1.0] * 4, 1.0))
    layer.screening = Screening([chunk])
    assert layer(torch.randn(1, 5, HIDDEN)).shape == (1, 5, SIZE)
    layer.screening = Screening([chunk] * 4)
    assert layer(torch.full((1, 20, HIDDEN), torch.nan)).shape == (1, 20, SIZE)
    # What was set for one pass says nothing of the next.
    assert layer(torch.randn(1, 20, HIDDEN)).shape == (1, 20, SIZE)


@torch.inference_mode()
def test_rows_of_another_number_are_all_computed() -> None:
    # A model that leaves rows out after its output layer.
    layer = OutputLayer(nn.Linear(HIDDEN, SIZE, bias=False), MASKED)
    chunk = Chunk(PagedSequence(1), [0] * 5, 5, Screen([9, 8, 7, 6], [1.0] * 4, 1.0))
    layer.screening = screening = Screening([chunk] * 4)
    assert layer(torch.randn(1, 23, HIDDEN)).shape == (1, 23, SIZE)
    assert screening.counts == [5] * 4


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Screens where the vocabulary is small."""
    for name, value in (("_LARGE", 1), ("_PART", 40), ("_WORTH", 1)):
        monkeypatch.setattr(output_layer, name, value)


@pytest.mark.parametrize(
    ("cancels", "dtype", "size"),
    [
        ("bias", torch.bfloat16, 16),
        ("bias", torch.float16, 16),
        ("products", torch.float32, 8192),
    ],
)
@torch.inference_mode()
def test_what_cancels_in_a_logit_outside_the_part_refuses_nothing(
    small: None, cancels: str, dtype: torch.dtype, size: int
) -> None:
    # Row i is certain of token 40 + i by a little: id 0 comes next, and nothing else is near.
    torch.manual_seed(5)
    count, chunks = 65, []
    linear = nn.Linear(size + count + 1, 40 + count, dtype=dtype)
    weight, bias = linear.weight.data.zero_(), linear.bias.data.zero_()
    hidden = torch.zeros(count, size + count + 1, dtype=dtype)
    hidden[:, size:-1] = torch.eye(count)
    weight[1:, size:-1] = -1000
    weight[40:, size:-1].fill_diagonal_(0)
    weight[0, -1] = 1
    if cancels == "bias":
        hidden[:, :size] = 1 + torch.rand(count, size)
        weight[40:, :size] = 100 / size * (1 + 0.1 * torch.rand(count, size))
        bias[40:] = -150
    else:
        half = size // 2
        hidden[:, :half] = torch.randn(count, half) * 10
        hidden[:, half:size] = hidden[:, :half]
        weight[40:, :half] = torch.randn(count, half) * 300
        weight[40:, half:size] = -weight[40:, :half]
    layer = OutputLayer(linear)
    own = layer(hidden).diagonal(40).clone()
    hidden[:, -1] = own - own.abs() * (2 * torch.finfo(dtype).eps) - 2e-3
    whole = layer(hidden)
    assert whole.argmax(1).tolist() == list(range(40, 40 + count))
    for first in range(0, count, 5):
        tokens = range(40 + first, 40 + first + 4)
        chunks.append(Chunk(PagedSequence(1), [0] * 5, 5, Screen(tokens, [0.5] * 4, 0.0)))
    layer.screening = screening = Screening(chunks)
    layer(hidden)
    assert screening.counts == [5] * len(chunks)


def verdicts(target: HuggingFaceTarget, method: str, sampling: Sampling) -> list[Verdict]:
    """Of blocks that many sessions send at once, round after round."""
    coins = random.Random(5)
    masked = set(target.vocabulary.masked_ids.tolist())
    usable = [token for token in range(len(target.vocabulary)) if token not in masked]
    pair, keys = Pair("pair", np.array(usable)), token_keys(target.vocabulary)
    runner, held, found = Runner(target), [], []
    for seed in range(10):
        generation = Generation(method, sampling, 64, seed)
        half = server_half(generation, keys, PrfCoins(seed=seed, side=Side.SERVER))
        prompt = [coins.choice(usable) for _ in range(coins.randrange(1, 9))]
        held.append(Session(prompt_ids=prompt, generation=generation, half=half, pair=pair))
    for _ in range(6):
        works = []
        for session in held:
            tokens = [coins.choice(usable) for _ in range(coins.randrange(5))]
            # q of what is hardly likely, so that some are kept.
            numerators = [coins.choice([GRID // 400, GRID // 40]) for _ in tokens]
            settled = coins.choice(usable) if session.awaits_device else None
            message = Verify(0, len(session.generated) + (settled is not None), settled=settled)
            proposal = Proposal(tokens, None if method in ("greedy", "coupled") else numerators)
            works.append(VerifyWork(session, message, proposal))
        runner.step([(work, 512) for work in works])
        for work in works:
            assert work.error is None
            assert work.verdict is not None
            found.append(work.verdict)
    for session in held:
        session.close(target)
    return found


@pytest.mark.parametrize("method", ["hybrid", "candidates", "target_resample", "greedy", "coupled"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_verdicts_are_the_same(
    tiny_folder: Callable[[str], Path],
    small: None,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    family: str,
) -> None:
    sampling = Sampling(temperature=0.0 if method == "greedy" else 0.8)
    target = HuggingFaceTarget.load(tiny_folder(family), device="cpu", dtype="float32")
    rows: list[int] = []
    forward = target.forward

    def watched(chunks: Sequence[Chunk]) -> list[torch.Tensor]:
        logits = forward(chunks)
        rows.append(sum(map(len, logits)) - sum(chunk.rows for chunk in chunks))
        return logits

    monkeypatch.setattr(target, "forward", watched)
    screened = verdicts(target, method, sampling)
    assert (sum(rows) < 0) == (method != "coupled")
    monkeypatch.setattr(target, "_head", None)
    rows.clear()
    assert verdicts(target, method, sampling) == screened
    assert not any(rows)


def test_a_model_that_changes_its_logits_is_not_screened(
    tiny_folder: Callable[[str], Path], small: None
) -> None:
    capped = HuggingFaceTarget.load(tiny_folder("gemma2"), device="cpu", dtype="float32")
    sequence = capped.new_sequence()
    screen = Screen([3, 4], [1.0, 1.0], 1.0)
    (logits,) = capped.forward([Chunk(sequence, [1, 3, 4], 3, screen)])
    assert len(logits) == 3


class AnotherGreedy(GreedyServer):
    def accepts(self, rows: Rows, index: int, proposal: Proposal, *, position: int) -> bool:
        return True


class AnotherSpeculative(TargetResampleServer):
    def accepts(self, rows: Rows, index: int, proposal: Proposal, *, position: int) -> bool:
        return True


def test_whoever_changes_a_test_inherits_no_bounds() -> None:
    coins = PrfCoins(seed=1, side=Side.SERVER)
    proposal = Proposal([3], [5])
    for plain in (GreedyServer(), TargetResampleServer(coins)):
        assert plain.refused_up_to(proposal, position=0) is not None
    for changed in (AnotherGreedy(), AnotherSpeculative(coins)):
        assert changed.refused_up_to(proposal, position=0) is None


def test_another_test_has_no_bounds() -> None:
    generation = Generation("mentored", Sampling(), 9, 1, {"d": 0.2})
    half = server_half(generation, np.zeros(1, np.uint64), PrfCoins(seed=1, side=Side.SERVER))
    assert half.refused_up_to(Proposal([3], [5]), position=0) is None
