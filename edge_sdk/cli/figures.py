"""What generations cost, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from edge_sdk.decoding.registry import METHODS
from edge_sdk.stats import Stats


def figures(runs: Sequence[Stats]) -> Table:
    """The glossary's figures, one column a run."""
    table = Table()
    table.add_column("")
    for run in runs:
        table.add_column(labelled(run.method), justify="right")
    rows = [
        ("tokens", [f"{run.tokens}" for run in runs]),
        ("tokens/s", [f"{run.tokens_per_second:.1f}" for run in runs]),
        ("acceptance", [f"{run.acceptance:.3f}" if run.examined else "-" for run in runs]),
        ("target calls a token", [f"{run.target_calls_per_token:.3f}" for run in runs]),
        ("bits up a token", [f"{run.up_bits_per_token:,.0f}" for run in runs]),
        ("bits down a token", [f"{run.down_bits_per_token:,.0f}" for run in runs]),
        ("of the time: drafting", [_share(run.draft_seconds, run) for run in runs]),
        ("link", [_share(run.link_seconds, run) for run in runs]),
        ("server", [_share(run.verify_seconds, run) for run in runs]),
        ("overhead", [_share(run.overhead_seconds, run) for run in runs]),
        (
            "V_C",
            [f"{run.common_vocabulary:,}" if run.common_vocabulary else "-" for run in runs],
        ),
    ]
    for name, cells in rows:
        table.add_row(name, *cells)
    return table


def _share(seconds: float, run: Stats) -> str:
    return f"{100 * seconds / run.seconds:.0f} %" if run.seconds > 0 else "-"


def labelled(method: str) -> str:
    """A method's name, with a label if its texts do not have the target's law."""
    known = METHODS.get(method)
    return f"{method} (LOSSY)" if known is not None and not known.lossless else method
