"""How often a draft can be accepted at all: `python -m bench.acceptance --json`.

For a target law p and a draft law q the share of accepted drafts is sum_v min(p(v), q(v))
(Leviathan et al. 2023, eq. 7). It is averaged over the positions of texts that the target
itself writes; the draft reads the same text through the follower that the SDK uses, and q
lives on V_C, renormalised.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.models import DRAFT, TARGET, open_draft, prepare_pair
from bench.program import run
from bench.prompts import PROMPTS
from bench.terminal import steps
from edge_sdk.decoding.coins import Key, PrfCoins, Purpose, Side
from edge_sdk.decoding.laws import shaped
from edge_sdk.draft.follower import Follower
from edge_sdk.draft.model import DraftModel
from edge_sdk.sampling import Sampling
from edge_sdk.vocab import Alignment
from server_app.methods.rows import Rows
from server_app.target.loading import load_target
from server_app.target.model import Chunk, TargetModel

TEMPERATURES: Final = (0.3, 0.7, 1.0)


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
    prompts: Sequence[str] = PROMPTS,
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


def report(
    sampled: Sequence[Overlap], greedy: Overlap, *, common_vocabulary: int
) -> dict[str, Any]:
    """The JSON line; temperatures are string keys."""
    return {
        "expected_acceptance": {str(o.temperature): round(o.acceptance, 4) for o in sampled},
        "standard_error": {str(o.temperature): round(o.error, 4) for o in sampled},
        "other_mass": {str(o.temperature): round(o.other_mass, 4) for o in sampled},
        "greedy_agreement": round(greedy.acceptance, 4),
        "greedy_agreement_standard_error": round(greedy.error, 4),
        "common_vocabulary": common_vocabulary,
        "prompts": len(PROMPTS),
        "positions": sum(o.positions for o in (*sampled, greedy)),
    }


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def acceptance(
    as_json: Annotated[bool, typer.Option("--json", help="The last line is JSON.")] = False,
    tokens: Annotated[int, typer.Option(min=2, help="Most tokens of a text.")] = 48,
    seed: Annotated[int, typer.Option(min=0, help="The same seed repeats the texts.")] = 1,
    target: Annotated[str, typer.Option(help="What `cosd prepare` takes, or toy:SEED.")] = TARGET,
    draft: Annotated[
        str, typer.Option(help="What `cosd prepare --draft` takes, or toy:SEED.")
    ] = DRAFT,
) -> None:
    """Measure how much the laws of target and draft overlap, by temperature."""
    console = Console()
    pair = prepare_pair(target, draft, console=console)
    with console.status("loading the models"):
        model = load_target(pair.target if pair.target.startswith("toy") else Path(pair.target))
        drafting = open_draft(pair.draft)
    temperatures = (*TEMPERATURES, 0.0)
    try:
        with steps("writing texts", len(temperatures) * len(PROMPTS)) as advance:
            overlaps = [
                measure(
                    model,
                    drafting,
                    temperature=temperature,
                    tokens=tokens,
                    seed=seed,
                    advance=advance,
                )
                for temperature in temperatures
            ]
        common = len(Alignment.between(target=model.vocabulary, draft=drafting.vocabulary))
    finally:
        drafting.close()
    console.print(_table(overlaps))
    if as_json:
        line = report(overlaps[:-1], overlaps[-1], common_vocabulary=common)
        print(json.dumps(line), flush=True)


def _table(overlaps: Sequence[Overlap]) -> Table:
    table = Table(title="share of drafts that can be accepted")
    for name in ("temperature", "sum min(p, q)", "standard error", "V_O mass", "positions"):
        table.add_column(name, justify="right")
    for overlap in overlaps:
        table.add_row(
            f"{overlap.temperature:g}",
            f"{overlap.acceptance:.3f}",
            f"{overlap.error:.3f}",
            f"{overlap.other_mass:.3f}",
            f"{overlap.positions}",
        )
    return table


if __name__ == "__main__":
    sys.exit(run(app, "bench.acceptance"))
