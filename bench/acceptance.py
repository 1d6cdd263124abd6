"""How often a draft can be accepted at all: `python -m bench.acceptance --json`.

The mean of sum_v min(p(v), q(v)) (`bench.overlap`) by temperature, over `bench.prompts`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from bench.models import DRAFT, TARGET, open_draft, prepare_pair
from bench.program import run
from bench.prompts import PROMPTS
from bench.terminal import steps
from edge_sdk.vocab import Alignment

if TYPE_CHECKING:
    from bench.overlap import Overlap

TEMPERATURES: Final = (0.3, 0.7, 1.0)


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
    tokens: Annotated[int, typer.Option(min=2, help="Most tokens of a text.")] = 40,
    seed: Annotated[int, typer.Option(min=0, help="The same seed repeats the texts.")] = 1,
    target: Annotated[str, typer.Option(help="What `cosd prepare` takes, or toy:SEED.")] = TARGET,
    draft: Annotated[
        str, typer.Option(help="What `cosd prepare --draft` takes, or toy:SEED.")
    ] = DRAFT,
) -> None:
    """Measure how much the laws of target and draft overlap, by temperature."""
    # Before torch starts its threads, for the reason given in `server_app.command`.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from bench.overlap import measure
    from server_app.target.loading import load_target

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
                    prompts=PROMPTS,
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
