"""A report as tables in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from export.check.report import Report


def show(report: Report, console: Console) -> None:
    """Print a report."""
    folder = report.folder
    console.print(
        f"{folder.name}: {folder.architecture}, {folder.bits}-bit weights, graph by "
        f"{folder.backend}, {folder.size_mb:,.1f} MB, {folder.logits_width:,} tokens, context "
        f"{folder.context:,}",
        markup=False,
        highlight=False,
    )
    console.print(Group(*_tables(report)))
    for note in report.notes:
        console.print(Text(note, style="yellow"))


def _tables(report: Report) -> Iterator[Table]:
    parity = report.parity
    if parity is not None:
        yield _pairs(
            f"Beside its source, {parity.tokens} tokens of text",
            ("largest difference of logits", f"{parity.max_logit_difference:.3g}"),
            ("same likeliest token", f"{parity.top1:.1%}"),
            ("KL(source, draft)", f"{parity.kl:.4f} nats"),
            ("one pass against token by token", f"{parity.max_path_difference:.2g}"),
        )
    speeds = Table(title=f"Speed on {report.machine}", title_justify="left")
    prompt = report.speeds[0].prefill_tokens
    columns = ("threads", "decode ms", f"{prompt} tokens ms", "load s", "memory MB", "x folder")
    for name in columns:
        speeds.add_column(name, justify="right")
    for speed in report.speeds:
        speeds.add_row(
            str(speed.threads),
            f"{speed.decode_ms:.1f}",
            f"{speed.prefill_ms:,.0f}",
            f"{speed.load_s:.2f}",
            f"{speed.resident_mb:,.0f}",
            f"{speed.resident_mb / report.folder.size_mb:.2f}",
        )
    yield speeds
    if report.common is not None:
        common = report.common
        yield _pairs(
            f"With the target {common.target}",
            ("common vocabulary", f"{common.tokens:,} tokens"),
            ("share of the target's tokens", f"{common.share_of_target:.1%}"),
            ("share of the draft's tokens", f"{common.share_of_draft:.1%}"),
            *_acceptance(report),
        )
    if report.recommendation is not None:
        advice = report.recommendation
        table = Table(
            title=f"Recommended (draft {advice.draft_ms:.1f} ms a token, target "
            f"{advice.target_ms:.1f} ms a pass)",
            title_justify="left",
        )
        for name in ("round trip ms", "method", "gamma", "speedup"):
            table.add_column(name, justify="right")
        for choice in advice.choices:
            table.add_row(
                f"{choice.rtt_ms:g}",
                choice.method,
                str(choice.gamma) if choice.gamma else "-",
                f"{choice.speedup:.2f}",
            )
        table.caption = f"Drafting pays up to a round trip of {advice.pays_up_to_ms:,.0f} ms."
        table.caption_justify = "left"
        yield table


def _acceptance(report: Report) -> Iterator[tuple[str, str]]:
    found = report.acceptance
    if found is None:
        return
    error = "" if found.error is None else f" ± {found.error:.3f}"
    for method, value in found.by_method.items():
        spread = error if method == "hybrid" else ""
        at = "0" if method == "greedy" else f"{found.temperature:g}"
        yield f"acceptance, {method}, temperature {at}", f"{value:.3f}{spread}"
    if found.other_mass is not None:
        yield "mass outside the common vocabulary", f"{found.other_mass:.1%}"


def _pairs(title: str, *rows: tuple[str, str]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(name, value)
    return table
