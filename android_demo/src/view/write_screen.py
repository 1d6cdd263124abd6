"""Prompt, text and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import flet as ft

from cosd_app.controller import Controller
from cosd_app.marks import MARKS, spoken
from cosd_app.state import Phase, Span, State
from view.figures_panel import FiguresPanel
from view.theme import GAP, token_style

_FINISH: Final = {
    "stopped": "Stopped.",
    "cut off": "The app ended while this was written.",
    "length": "Long enough: the length set in Settings is reached.",
    "context": "The model's memory is full.",
}


class WriteScreen(ft.Column):
    """What a person does most of the time."""

    def __init__(self, controller: Controller, seed: Callable[[], int | None]) -> None:
        super().__init__(expand=True, spacing=GAP)
        self._controller = controller
        self._seed = seed
        self._prompt = ft.TextField(
            label="Prompt", key="prompt", multiline=True, min_lines=1, max_lines=4, expand=True
        )
        self._write = ft.FilledButton("Write", icon=ft.Icons.EDIT, on_click=self._on_write)
        self._stop = ft.FilledButton("Stop", icon=ft.Icons.STOP, on_click=self._on_stop)
        self._go_on = ft.OutlinedButton("Go on", on_click=self._on_go_on)
        self._new = ft.OutlinedButton("New", on_click=self._on_new)
        self._text = ft.ListView(expand=True, spacing=8, auto_scroll=True)
        self._note = ft.Text("", size=12, color=ft.Colors.ON_SURFACE_VARIANT)
        self._legend = ft.Row(wrap=True, spacing=14, run_spacing=2)
        self._figures = FiguresPanel()
        self._shown: tuple[Any, ...] = ()
        self._area = ft.Container(
            # Selects over paragraphs, and screen readers still read them as text.
            ft.SelectionArea(content=self._text),
            expand=True,
            padding=12,
            border_radius=8,
            bgcolor=ft.Colors.SURFACE_CONTAINER_LOW,
        )
        self._entry = ft.Row([self._prompt])
        self._buttons = ft.Row([self._write, self._stop, self._go_on, self._new], wrap=True)

    def show(self, state: State, *, dark: bool, low: bool) -> None:
        """Take a new state.

        Args:
            low: the screen is too low for everything, as that of a phone on its side: what is
                not needed to write scrolls with the text.
        """
        writing = state.phase in (Phase.GENERATING, Phase.STOPPING)
        self._write.visible = not writing
        self._write.disabled = state.busy or state.phase is Phase.SETUP
        self._stop.visible = writing
        self._stop.disabled = state.phase is Phase.STOPPING
        over = not state.busy and not state.choices.chat and bool(state.spans)
        self._go_on.visible = over and state.finish in ("stopped", "cut off", "length")
        self._new.visible = not state.busy and bool(state.spans or state.turns)
        self._prompt.label = "Message" if state.choices.chat else "Prompt"
        self._note.value = _note(state)
        self._note.visible = bool(self._note.value)
        self._figures.visible = state.figures.tokens > 0 or writing
        self._figures.show(state.figures, dark=dark)
        text = (state.turns, state.prompt, state.spans, state.phase, dark, low)
        if text != self._shown:
            self._shown = text
            beside: list[ft.Control] = [self._note, self._legend, self._figures]
            # Above the text, since what is written last is what is looked at.
            self._text.controls = [*(beside if low else []), *_paragraphs(state, dark=dark)]
            self._legend.controls = _legend(state, dark=dark)
            self.controls = [
                self._area,
                *([] if low else beside),
                self._entry,
                self._buttons,
            ]

    async def _on_write(self, event: Any) -> None:
        prompt = self._prompt.value
        if self._controller.state.choices.chat:
            self._prompt.value = ""
        await self._controller.generate(prompt, seed=self._seed())

    async def _on_stop(self, event: Any) -> None:
        await self._controller.stop()

    async def _on_go_on(self, event: Any) -> None:
        await self._controller.go_on()

    async def _on_new(self, event: Any) -> None:
        self._prompt.value = ""
        await self._controller.new_text()


def _note(state: State) -> str:
    if state.phase is Phase.SETUP:
        return "Open Settings first: choose a server and download a draft."
    if state.phase is Phase.GENERATING and not state.spans:
        return "Loading the draft and asking the server ..."
    return "" if state.busy else _FINISH.get(state.finish, "")


def _paragraphs(state: State, *, dark: bool) -> list[ft.Control]:
    shown: list[ft.Control] = []
    for turn in state.turns:
        who = "You" if turn.role == "user" else "Answer"
        plain = turn.role == "user"
        shown.append(_paragraph(turn.spans, before=f"{who}: ", plain=plain, dark=dark))
    if state.prompt:
        who = "You: " if state.choices.chat else ""
        shown.append(ft.Text(f"{who}{state.prompt}"))
    if state.spans or state.phase is Phase.GENERATING:
        before = "Answer: " if state.choices.chat else ""
        shown.append(_paragraph(state.spans, before=before, plain=False, dark=dark, name="text"))
        shown.append(
            ft.Semantics(
                content=ft.Container(height=1),
                label=f"Of this text {spoken(state.spans)}",
                container=True,
            )
        )
    return shown


def _paragraph(
    spans: Sequence[Span], *, before: str, plain: bool, dark: bool, name: str | None = None
) -> ft.Control:
    parts = [ft.TextSpan(before, ft.TextStyle(weight=ft.FontWeight.BOLD))] if before else []
    parts += [
        ft.TextSpan(span.text, None if plain else token_style(span.origin, dark=dark))
        for span in spans
    ]
    return ft.Semantics(content=ft.Text(spans=parts, size=16), identifier=name, container=True)


def _legend(state: State, *, dark: bool) -> list[ft.Control]:
    origins = {span.origin for span in state.spans}
    origins |= {span.origin for turn in state.turns if turn.role != "user" for span in turn.spans}
    return [
        ft.Text(
            spans=[ft.TextSpan(mark.name, token_style(origin, dark=dark))],
            size=12,
            tooltip=mark.meaning,
        )
        for origin, mark in MARKS.items()
        if origin in origins
    ]
