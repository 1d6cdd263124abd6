"""Live figures and a small chart of the speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import flet as ft
import flet.canvas as cv

from cosd_app.state import Figures
from view.theme import line_color

_HEIGHT: Final = 48.0
_WIDTH: Final = 320.0


class FiguresPanel(ft.Column):
    """Tokens a second, acceptance, bytes and round trip of the text under way or the last."""

    def __init__(self) -> None:
        super().__init__(spacing=4, tight=True)
        self._numbers = {
            name: ft.Text("-", weight=ft.FontWeight.BOLD, size=16)
            for name in ("tokens/s", "accepted", "bytes up/down", "round trip")
        }
        self._tiles = {
            name: ft.Semantics(
                content=ft.Column(
                    [ft.Text(name, size=12, color=ft.Colors.ON_SURFACE_VARIANT), value],
                    spacing=0,
                    tight=True,
                ),
                label=f"{name}: none yet",
                exclude_semantics=True,
                container=True,
            )
            for name, value in self._numbers.items()
        }
        self._canvas = cv.Canvas([], width=_WIDTH, height=_HEIGHT)
        self._chart = ft.Semantics(
            content=self._canvas,
            label="Chart of tokens a second: none yet",
            image=True,
            container=True,
        )
        self.controls = [
            ft.Row(list(self._tiles.values()), wrap=True, spacing=20, run_spacing=4),
            self._chart,
        ]

    def show(self, figures: Figures, *, dark: bool) -> None:
        """Take new figures."""
        accepted = "-" if figures.acceptance is None else f"{100 * figures.acceptance:.0f} %"
        trip = "-" if figures.round_trip is None else f"{1000 * figures.round_trip:.0f} ms"
        shown = {
            "tokens/s": f"{figures.tokens_per_second:.1f}" if figures.tokens else "-",
            "accepted": accepted,
            "bytes up/down": f"{_bytes(figures.up_bytes)} / {_bytes(figures.down_bytes)}",
            "round trip": trip,
        }
        for name, text in shown.items():
            self._numbers[name].value = text
            self._tiles[name].label = f"{name}: {'none yet' if text == '-' else text}"
        rates = figures.rates
        self._chart.visible = bool(rates)
        self._canvas.shapes = _shapes(rates, line_color(dark=dark)) if rates else []
        if rates:
            self._chart.label = (
                f"Chart of tokens a second: now {rates[-1]:.0f}, between {min(rates):.0f} and "
                f"{max(rates):.0f}"
            )


def _bytes(number: int) -> str:
    if number < 10_000:
        return f"{number} B"
    return f"{number / 1000:.0f} kB" if number < 10_000_000 else f"{number / 1e6:.0f} MB"


def _shapes(rates: Sequence[float], color: str) -> list[cv.Shape]:
    """A line from left to right, scaled to the fastest moment, above a base line."""
    top = max(*rates, 1.0) if len(rates) > 1 else max(rates[0], 1.0)
    step = _WIDTH / max(len(rates) - 1, 1)
    points = [
        (min(index * step, _WIDTH), _HEIGHT - 2 - (_HEIGHT - 6) * rate / top)
        for index, rate in enumerate(rates)
    ]
    if len(points) == 1:
        points.append((_WIDTH, points[0][1]))
    line = cv.Path(
        [cv.Path.MoveTo(*points[0]), *[cv.Path.LineTo(*point) for point in points[1:]]],
        paint=ft.Paint(color=color, stroke_width=2, style=ft.PaintingStyle.STROKE),
    )
    base = cv.Line(
        0,
        _HEIGHT - 1,
        _WIDTH,
        _HEIGHT - 1,
        paint=ft.Paint(color=ft.Colors.OUTLINE_VARIANT, stroke_width=1),
    )
    return [base, line]
