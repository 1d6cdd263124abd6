"""How often a target would accept what a draft drafts, on the user's prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Key, PrfCoins, Purpose, Side
from edge_sdk.decoding.laws import shaped
from edge_sdk.draft.follower import Follower
from edge_sdk.draft.model import DraftModel
from edge_sdk.errors import PromptTooLong
from edge_sdk.sampling import Sampling
from edge_sdk.vocab import Alignment
from export.check.agreement import coupled, overlap
from export.check.local_target import TargetLaws
from export.progress import NoProgress, Progress


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Chance that one drafted token is accepted, a mean over positions.

    Attributes:
        how: `laws` (both laws were held at every position) or `served` (counted by a server).
        temperature: of both laws.
        by_method: by decoding method: `hybrid`, `coupled` and, where the laws were held,
            `greedy`, the share of positions at which both have the same likeliest token.
        error: standard error of `hybrid` over prompts; None for a single prompt.
        by_prompt: `hybrid` for each prompt, in order.
        other_mass: mean mass of the target's law on V_O; None where a server counted.
        positions: how many drafted tokens were judged.
    """

    how: str
    temperature: float
    by_method: dict[str, float]
    error: float | None
    by_prompt: tuple[float, ...]
    other_mass: float | None
    positions: int


def expected_acceptance(
    target: TargetLaws,
    draft: DraftModel,
    prompts: Sequence[str],
    *,
    temperature: float = 0.7,
    tokens: int = 32,
    seed: int = 1,
    progress: Progress | None = None,
) -> Acceptance:
    """Let the target write a text a prompt and compare the laws at every position.

    The draft reads along as in the SDK, and its law lives on V_C, renormalised.

    Args:
        target, draft: the pair.
        prompts: at least one.
        temperature: above 0.
        tokens: most tokens of a text.
        seed: the same seed repeats the texts.
        progress: one stage.

    Raises:
        VocabularyMismatch: the pair shares too little.
        PromptTooLong: no prompt fits the draft's context.
    """
    progress = progress or NoProgress()
    alignment = Alignment.between(target=target.vocabulary, draft=draft.vocabulary)
    found: list[NDArray[np.float64]] = []
    with progress.stage("compare laws on the prompts", len(prompts)) as stage:
        for index, prompt in enumerate(prompts):
            rows = _text(target, draft, alignment, prompt, temperature, tokens, seed + index)
            if len(rows):
                found.append(rows)
            stage.advance()
    if not found:
        raise PromptTooLong(
            f"no prompt leaves room in the draft's context of {draft.context} tokens; give "
            "shorter ones",
            field="prompts",
        )
    every = np.concatenate(found).mean(axis=0)
    return Acceptance(
        how="laws",
        temperature=temperature,
        by_method=dict(zip(("hybrid", "coupled", "greedy"), map(float, every[:3]), strict=True)),
        error=standard_error([float(rows[:, 0].mean()) for rows in found]),
        by_prompt=tuple(float(rows[:, 0].mean()) for rows in found),
        other_mass=float(every[3]),
        positions=sum(map(len, found)),
    )


def standard_error(means: Sequence[float]) -> float | None:
    """Of the mean of `means`; None for fewer than two."""
    return float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else None


def _text(
    target: TargetLaws,
    draft: DraftModel,
    alignment: Alignment,
    prompt: str,
    temperature: float,
    tokens: int,
    seed: int,
) -> NDArray[np.float64]:
    """Acceptance of three methods and the mass on V_O, along one text [positions, 4]."""
    sampling = Sampling(temperature=temperature)
    coins = PrfCoins(seed=seed, side=Side.SERVER)
    follower = Follower(draft, alignment, target.vocabulary)
    follower.begin(draft.text.prompt(prompt))
    found: list[tuple[float, float, float, float]] = []
    if not follower.room:
        return np.empty((0, 4))
    logits = target.begin(prompt)
    while len(found) < tokens and follower.room:
        p = shaped(logits, sampling)
        drafted = follower.logits()
        q = shaped(drafted, sampling)
        common = p[alignment.target_ids]
        same = int(logits.argmax()) == int(alignment.target_ids[int(drafted.argmax())])
        found.append((overlap(common, q), coupled(common, q), same, 1.0 - float(common.sum())))
        token = coins.categorical(Key(len(found), Purpose.SETTLE), p)
        if token in target.vocabulary.end_ids:
            break
        follower.settle(token)
        logits = target.extend([token])
    return np.array(found)
