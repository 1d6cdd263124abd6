"""Colours and styles. What a colour says, a style says too, for people who see no colour."""

from __future__ import annotations

from typing import Final

import flet as ft

from edge_sdk.text.tokens import Origin

SEED: Final = "#00695C"
GAP: Final = 12
LOW: Final = 560  # height below which a page has no room for everything

# Each has a contrast of 4.5 and more with the surface of its theme (WCAG AA).
_LIGHT: Final = {
    Origin.ACCEPTED: "#1B5E20",
    Origin.SETTLED: "#A63A00",
    Origin.SERVER: "#0D47A1",
    Origin.UNVERIFIED: "#6A1B9A",
}
_DARK: Final = {
    Origin.ACCEPTED: "#A5D6A7",
    Origin.SETTLED: "#FFB74D",
    Origin.SERVER: "#90CAF9",
    Origin.UNVERIFIED: "#CE93D8",
}


def is_dark(page: ft.Page) -> bool:
    """What is shown is dark, by choice or by the system's."""
    if page.theme_mode is ft.ThemeMode.SYSTEM:
        return page.platform_brightness is ft.Brightness.DARK
    return page.theme_mode is ft.ThemeMode.DARK


def token_style(origin: Origin, *, dark: bool) -> ft.TextStyle:
    """Accepted: plain; settled: bold and underlined; server: italic; unverified: wavy line."""
    color = (_DARK if dark else _LIGHT)[origin]
    if origin is Origin.SETTLED:
        return ft.TextStyle(
            color=color, weight=ft.FontWeight.BOLD, decoration=ft.TextDecoration.UNDERLINE
        )
    if origin is Origin.SERVER:
        return ft.TextStyle(color=color, italic=True)
    if origin is Origin.UNVERIFIED:
        return ft.TextStyle(
            color=color,
            decoration=ft.TextDecoration.UNDERLINE,
            decoration_style=ft.TextDecorationStyle.WAVY,
        )
    return ft.TextStyle(color=color)


def line_color(*, dark: bool) -> str:
    """Of the chart."""
    return (_DARK if dark else _LIGHT)[Origin.ACCEPTED]


def apply(page: ft.Page, theme: str) -> None:
    """Make the page light, dark or as the system wants it."""
    page.theme = ft.Theme(color_scheme_seed=SEED)
    page.dark_theme = ft.Theme(color_scheme_seed=SEED)
    page.theme_mode = ft.ThemeMode(theme)
