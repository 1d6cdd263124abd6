"""A report's plots, as SVG to stand inside a page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from export.check.report import Report

_BLUE, _ORANGE, _GREY = "#2b6cb0", "#c05621", "#a0aec0"


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture: what it shows, and its SVG."""

    title: str
    svg: str


def plots(report: Report) -> list[Plot]:
    """Every plot that the report has figures for."""
    return [
        Plot(title, _svg(figure, f"plot{number}-"))
        for number, (title, figure) in enumerate(_figures(report), start=1)
    ]


def _figures(report: Report) -> Iterator[tuple[str, Figure]]:
    yield "Milliseconds a decode step, by threads", _speeds(report)
    if report.parity is not None:
        yield "KL(source, draft) along the text, in nats", _kl(report)
    if report.acceptance is not None:
        yield "Acceptance by prompt (hybrid)", _prompts(report)
    if report.recommendation is not None:
        yield "Speedup by gamma and round trip time (hybrid)", _speedup(report)


def _speeds(report: Report) -> Figure:
    figure, axes = _empty()
    names = [str(speed.threads) for speed in report.speeds]
    bars = axes.bar(names, [speed.decode_ms for speed in report.speeds], width=0.5, color=_BLUE)
    axes.bar_label(bars, fmt="{:.1f}")
    axes.set_xlabel("threads")
    axes.set_ylabel("ms")
    return figure


def _kl(report: Report) -> Figure:
    figure, axes = _empty()
    assert report.parity is not None
    values = report.parity.kl_by_position
    axes.fill_between(range(len(values)), values, color=_BLUE, alpha=0.6, linewidth=0)
    axes.axhline(report.parity.kl, color=_ORANGE, label=f"mean {report.parity.kl:.4f}")
    axes.set_xlabel("token")
    axes.set_ylabel("nats")
    axes.legend(frameon=False)
    return figure


def _prompts(report: Report) -> Figure:
    assert report.acceptance is not None
    values = report.acceptance.by_prompt
    figure, axes = _empty(height=1.0 + 0.3 * len(values))
    names = [_short(prompt) for prompt in report.prompts[: len(values)]]
    bars = axes.barh(range(len(values)), values, color=_BLUE)
    axes.bar_label(bars, fmt="{:.2f}", padding=3)
    # Tick labels go through no markup: a dollar sign in a prompt is a dollar sign.
    axes.set_yticks(range(len(values)), names, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.1)
    return figure


def _speedup(report: Report) -> Figure:
    figure, axes = _empty()
    assert report.recommendation is not None
    advice = report.recommendation
    for choice, curve in zip(advice.choices, advice.curves, strict=True):
        axes.plot(range(1, len(curve) + 1), curve, label=f"{choice.rtt_ms:g} ms", marker=".")
    axes.axhline(1.0, color=_GREY, linestyle="--")
    axes.set_xlabel("gamma")
    axes.set_ylabel("tokens/s over the server alone")
    axes.legend(frameon=False, title="round trip")
    return figure


def _short(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= 40 else f"{line[:39]}…"


def _empty(height: float = 3.2) -> tuple[Figure, Any]:
    figure = Figure(figsize=(7.0, height), layout="constrained")
    axes: Any = figure.subplots()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _svg(figure: Figure, prefix: str) -> str:
    """The element alone, its ids begun with `prefix`: those of two pictures must not meet."""
    buffer = io.StringIO()
    # Letters stay text: the browser has those that the font of the measuring machine lacks.
    letters = matplotlib.rc_context({"svg.hashsalt": prefix, "svg.fonttype": "none"})
    with letters, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    element = text[text.index("<svg") :]
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", element)
