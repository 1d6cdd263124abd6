"""Overlap of a target's and a draft's law along texts that the target writes.

For a target law p and a draft law q the share of accepted drafts is sum_v min(p(v), q(v))
(Leviathan et al. 2023, eq. 7). The draft reads the text through the follower that the SDK
uses, and q lives on V_C, renormalised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Key, PrfCoins, Purpose, Side
from edge_sdk.decoding.laws import shaped
from edge_sdk.draft.follower import Follower
from edge_sdk.draft.model import DraftModel
from edge_sdk.sampling import Sampling
from edge_sdk.vocab import Alignment
from server_app.methods.rows import Rows
from server_app.target.model import Chunk, TargetModel


@dataclass(frozen=True, slots=True)
class Overlap:
    """A mean over positions.

    Attributes:
        temperature: of both laws.
        acceptance: mean of sum_v min(p, q); at temperature 0 the share of positions where
            both models have the same likeliest token.
        error: its standard error over prompts.
        other_mass: mean of the mass of p on V_O.
        positions: how many.
    """

    temperature: float
    acceptance: float
    error: float
    other_mass: float
    positions: int


def measure(
    target: TargetModel,
    draft: DraftModel,
    *,
    temperature: float,
    prompts: Sequence[str],
    tokens: int = 48,
    seed: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> Overlap:
    """Write a text a prompt with the target and compare the laws at every position.

    Args:
        tokens: most tokens of a text.
        advance: called after each prompt.

    Raises:
        VocabularyMismatch: the pair shares too little.
    """
    alignment = Alignment.between(target=target.vocabulary, draft=draft.vocabulary)
    accepted, others = [], []
    for index, prompt in enumerate(prompts):
        overlaps = _overlaps(
            target,
            draft,
            alignment,
            prompt,
            sampling=Sampling(temperature=temperature),
            tokens=tokens,
            seed=seed + index,
        )
        accepted.append(overlaps[:, 0])
        others.append(overlaps[:, 1])
        advance()
    means = np.array([float(values.mean()) for values in accepted])
    spread = float(means.std(ddof=1)) if len(means) > 1 else float("nan")
    return Overlap(
        temperature=temperature,
        acceptance=float(np.concatenate(accepted).mean()),
        error=spread / len(means) ** 0.5,
        other_mass=float(np.concatenate(others).mean()),
        positions=sum(map(len, accepted)),
    )


def _overlaps(
    target: TargetModel,
    draft: DraftModel,
    alignment: Alignment,
    prompt: str,
    *,
    sampling: Sampling,
    tokens: int,
    seed: int,
) -> NDArray[np.float64]:
    """sum_v min(p, q) and the mass of p on V_O along one text [positions, 2]."""
    coins = PrfCoins(seed=seed, side=Side.SERVER)
    masked = torch.tensor(target.vocabulary.masked_ids.tolist(), dtype=torch.int64)
    masked = masked.to(target.device)
    follower = Follower(draft, alignment, target.vocabulary)
    follower.begin(draft.text.prompt(prompt))
    sequence = target.new_sequence()
    pending = target.encode(prompt)
    found: list[tuple[float, float]] = []
    try:
        while len(found) < tokens and follower.room:
            (logits,) = target.forward([Chunk(sequence, pending, 1)])
            p = Rows(logits, sampling, masked).law_array(0).astype(np.float64)
            q = shaped(follower.logits(), sampling)
            common = p[alignment.target_ids]
            found.append((float(np.minimum(common, q).sum()), 1.0 - float(common.sum())))
            token = coins.categorical(Key(len(found), Purpose.SETTLE), p)
            if token in target.vocabulary.end_ids:
                break
            follower.settle(token)
            pending = [token]
    finally:
        target.release(sequence)
    return np.array(found)
