"""Server, key, drafts, and how texts are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flet as ft

from cosd_app.controller import Controller
from cosd_app.state import Offer, State
from edge_sdk.decoding.registry import METHODS
from view.theme import GAP


class SettingsScreen(ft.Column):
    """What is set once and seldom changed."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(
            expand=True,
            spacing=GAP,
            scroll=ft.ScrollMode.AUTO,
            horizontal_alignment=ft.CrossAxisAlignment.STRETCH,
        )
        self._controller = controller
        self._server = ft.TextField(
            label="Server address",
            hint_text="https://host:8077",
            keyboard_type=ft.KeyboardType.URL,
            autocorrect=False,
        )
        self._key = ft.TextField(
            label="Key", password=True, autocorrect=False, enable_suggestions=False
        )
        self._key_note = ft.Text("", size=12, color=ft.Colors.ON_SURFACE_VARIANT)
        self._exposed = ft.Text(
            "This server is reached without encryption: others on the way can read key and texts.",
            color=ft.Colors.ERROR,
            visible=False,
        )
        self._connect = ft.FilledButton("Connect", icon=ft.Icons.LINK, on_click=self._on_connect)
        self._forget = ft.OutlinedButton("Forget key", on_click=self._on_forget)
        self._drafts = ft.Column(spacing=4)
        self._progress = ft.ProgressBar(value=0, semantics_label="Download")
        self._progress_text = ft.Text("", size=12)
        self._stop = ft.OutlinedButton("Stop download", on_click=self._on_stop)
        self._method = ft.Dropdown(
            label="Method",
            options=[ft.DropdownOption(key=name, text=_named(name)) for name in METHODS],
            on_select=self._on_method,
            expand=True,
        )
        # The menu has no label of its own for screen readers.
        self._method_label = ft.Semantics(content=self._method, label="Method")
        self._temperature_text = ft.Text("")
        self._temperature = ft.Slider(
            min=0, max=1.5, divisions=15, round=1, on_change_end=self._on_temperature
        )
        self._length = ft.TextField(
            label="Longest text, in tokens",
            keyboard_type=ft.KeyboardType.NUMBER,
            on_blur=self._on_length,
            on_submit=self._on_length,
        )
        self._seed = ft.TextField(
            label="Seed",
            hint_text="empty: a new one each time",
            keyboard_type=ft.KeyboardType.NUMBER,
            on_change=self._on_seed,
        )
        self._chat = ft.Switch(label="Chat", on_change=self._on_chat)
        self._theme = ft.SegmentedButton(
            [
                ft.Segment("system", label="System"),
                ft.Segment("light", label="Light"),
                ft.Segment("dark", label="Dark"),
            ],
            selected=["system"],
            on_change=self._on_theme,
        )
        self._entered: tuple[str, int] | None = None
        self._offers: tuple[Any, ...] = ()
        self.controls = [
            _heading("Server"),
            self._server,
            self._key,
            self._key_note,
            self._exposed,
            ft.Row([self._connect, self._forget], wrap=True),
            _heading("Drafts"),
            self._drafts,
            self._progress,
            self._progress_text,
            self._stop,
            _heading("Writing"),
            ft.MergeSemantics(content=self._method_label),
            self._temperature_text,
            self._temperature,
            self._length,
            self._seed,
            self._chat,
            _heading("Look"),
            self._theme,
        ]

    def seed(self) -> int | None:
        """The seed that was entered; None where there is none, or none that can be."""
        text = self._seed.value.strip()
        usable = text.isascii() and text.isdigit() and int(text) < 2**64
        return int(text) if usable else None

    def show(self, state: State) -> None:
        """Take a new state. What somebody is typing is left alone."""
        choices = state.choices
        entered = (choices.server, choices.max_tokens)
        if entered != self._entered:
            self._entered = entered
            self._server.value = choices.server
            self._length.value = str(choices.max_tokens)
        self._key_note.value = (
            "A key is stored. It is not shown; enter another one to replace it."
            if state.has_key
            else "No key is stored."
        )
        self._forget.visible = state.has_key
        self._exposed.visible = state.exposed
        self._connect.disabled = self._forget.disabled = state.busy
        loading = state.progress is not None
        self._progress.visible = self._progress_text.visible = self._stop.visible = loading
        if state.progress is not None:
            done, total = state.progress.done / 1e6, state.progress.total / 1e6
            self._progress.value = state.progress.share
            self._progress.semantics_value = round(100 * state.progress.share)
            self._progress_text.value = f"{done:.1f} of {total:.1f} MB"
        offers = (state.offers, choices.draft, state.busy, state.link)
        if offers != self._offers:
            self._offers = offers
            self._drafts.controls = self._rows(state.offers, choices.draft, busy=state.busy)
        self._method.value = choices.method
        self._method_label.label = f"Method: {choices.method}"
        self._temperature.value = min(choices.temperature, 1.5)
        self._temperature.disabled = choices.method == "greedy"
        self._temperature_text.value = f"Temperature {choices.temperature:.1f}"
        self._temperature.label = self._temperature_text.value
        self._chat.value = choices.chat
        self._theme.selected = [choices.theme]

    def _rows(self, offers: Sequence[Offer], used: str, *, busy: bool) -> list[ft.Control]:
        if not offers:
            return [ft.Text("The server offers none yet, or is not connected.", size=12)]
        rows: list[ft.Control] = []
        for offer in offers:
            note = "in use" if offer.installed and offer.name == used else ""
            title = f"{offer.name} ({offer.bytes / 1e6:.1f} MB) {note}".strip()
            buttons: list[ft.Control] = []
            if not offer.installed:
                buttons.append(
                    ft.FilledTonalButton(
                        "Download", data=offer.name, disabled=busy, on_click=self._on_download
                    )
                )
            elif offer.name != used:
                buttons.append(
                    ft.OutlinedButton("Use", data=offer.name, disabled=busy, on_click=self._on_use)
                )
            if offer.installed:
                buttons.append(
                    ft.OutlinedButton(
                        "Delete", data=offer.name, disabled=busy, on_click=self._on_remove
                    )
                )
            rows.append(ft.Row([ft.Text(title), *buttons], wrap=True))
        return rows

    async def _on_connect(self, event: Any) -> None:
        # What is entered is taken out of the screen before it is stored.
        key, self._key.value = self._key.value, ""
        self._key.update()
        await self._controller.set_server(self._server.value, key or None)

    async def _on_forget(self, event: Any) -> None:
        await self._controller.set_server(self._server.value, "")

    async def _on_download(self, event: Any) -> None:
        await self._controller.download(event.control.data)

    async def _on_remove(self, event: Any) -> None:
        await self._controller.remove(event.control.data)

    def _on_use(self, event: Any) -> None:
        self._controller.choose(draft=event.control.data)

    async def _on_stop(self, event: Any) -> None:
        await self._controller.stop()

    def _on_method(self, event: Any) -> None:
        self._controller.choose(method=event.control.value)

    def _on_temperature(self, event: Any) -> None:
        self._controller.choose(temperature=round(float(event.control.value), 1))

    def _on_length(self, event: Any) -> None:
        text = self._length.value.strip()
        self._length.error = None
        if text.isascii() and text.isdigit() and 1 <= int(text) <= 100_000:
            self._controller.choose(max_tokens=int(text))
        else:
            self._length.error = "A whole number from 1 to 100000"
        self._length.update()

    def _on_seed(self, event: Any) -> None:
        wrong = bool(self._seed.value.strip()) and self.seed() is None
        self._seed.error = (
            "A whole number of at most 64 bits; as it is, it is not used" if wrong else None
        )
        self._seed.update()

    def _on_chat(self, event: Any) -> None:
        self._controller.choose(chat=bool(event.control.value))

    def _on_theme(self, event: Any) -> None:
        self._controller.choose(theme=event.control.selected[0])


def _named(method: str) -> str:
    if METHODS[method].lossless:
        return method
    return f"{method} (approximate)"


def _heading(text: str) -> ft.Control:
    return ft.Semantics(
        content=ft.Text(text, size=18, weight=ft.FontWeight.BOLD), header=True, heading_level=2
    )
