"""The page: two screens, a badge that says whether the server answers, and the phone's events."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol

import flet as ft

from cosd_app.controller import Controller
from cosd_app.keys import FileKeyStore, KeyStore
from cosd_app.state import Link, Phase, State
from cosd_app.storage import Storage, data_folder
from view import theme
from view.problem_card import ProblemCard
from view.settings_screen import SettingsScreen
from view.write_screen import WriteScreen

log = logging.getLogger(__name__)

_FRAME: Final = 0.05  # seconds between two updates of the screen
_HIDDEN: Final = (ft.AppLifecycleState.HIDE, ft.AppLifecycleState.PAUSE)
_SEEN: Final = (ft.AppLifecycleState.SHOW, ft.AppLifecycleState.RESUME)
_BADGE: Final = {
    Link.ONLINE: ("online", ft.Icons.CLOUD_DONE),
    Link.OFFLINE: ("offline", ft.Icons.CLOUD_OFF),
    Link.UNKNOWN: ("no server", ft.Icons.CLOUD_QUEUE),
}


class Wakelock(Protocol):
    """What is used of Flet's, whose methods have no types."""

    async def enable(self) -> None: ...

    async def disable(self) -> None: ...


class AppView:
    """Shows the controller's state on a page.

    Args:
        page: of this session; built once, and kept while the phone turns or the app is hidden.
        storage: the app's folder.
    """

    def __init__(self, page: ft.Page, storage: Storage) -> None:
        self._page = page
        self._controller = Controller(storage, _keys(page, storage), on_change=self._changed)
        self._settings = SettingsScreen(self._controller)
        self._write = WriteScreen(self._controller, self._settings.seed)
        self._problem = ProblemCard()
        self._badge_icon = ft.Icon(ft.Icons.CLOUD_QUEUE, size=18)
        self._badge_text = ft.Text("no server", size=14)
        self._badge = ft.Semantics(
            content=ft.Row([self._badge_icon, self._badge_text], spacing=6, tight=True),
            label="Server: no server",
            container=True,
            exclude_semantics=True,
            live_region=True,
        )
        self._wakelock: Wakelock = ft.Wakelock()
        self._awake = False
        self._drawn: State | None = None
        self._frame: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Build the page and take up what was set last."""
        page = self._page
        page.title = "cosd"
        page.padding = theme.GAP
        page.appbar = ft.AppBar(
            title=ft.Text("cosd"),
            actions=[ft.Container(self._badge, padding=ft.Padding.only(right=16))],
        )
        page.navigation_bar = ft.NavigationBar(
            [
                ft.NavigationBarDestination(icon=ft.Icons.EDIT, label="Text"),
                ft.NavigationBarDestination(icon=ft.Icons.SETTINGS, label="Settings"),
            ],
            on_change=self._on_screen,
        )
        page.on_app_lifecycle_state_change = self._on_lifecycle
        page.on_platform_brightness_change = self._on_look
        page.on_resize = self._on_look
        page.on_close = self._on_close
        self._settings.visible = False
        page.add(
            ft.SafeArea(
                ft.Column([self._problem, self._write, self._settings], expand=True, spacing=8),
                expand=True,
            )
        )
        self._draw()
        await self._controller.start()
        self._watching = asyncio.create_task(self._controller.watch_memory())

    def _changed(self, state: State) -> None:
        """Draw soon: a fast text changes many times within one frame."""
        if self._frame is None:
            loop = asyncio.get_running_loop()
            self._frame = loop.call_later(_FRAME, self._draw)

    def _draw(self) -> None:
        self._frame = None
        state = self._controller.state
        if self._drawn is None or self._drawn.choices.theme != state.choices.theme:
            theme.apply(self._page, state.choices.theme)
        self._drawn = state
        self._problem.show(state.problem)
        low = 0 < (self._page.height or 0) < theme.LOW
        self._write.show(state, dark=theme.is_dark(self._page), low=low)
        self._settings.show(state)
        word, icon = _BADGE[state.link]
        self._badge_icon.icon, self._badge_text.value = icon, word
        self._badge.label = f"Server: {word}"
        self._page.update()
        self._keep_awake(state.phase in (Phase.GENERATING, Phase.DOWNLOADING))

    def _keep_awake(self, wanted: bool) -> None:
        if wanted != self._awake:
            self._awake = wanted
            task = asyncio.get_running_loop().create_task(self._set_wakelock(wanted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _set_wakelock(self, wanted: bool) -> None:
        try:
            if wanted:
                await self._wakelock.enable()
            else:
                await self._wakelock.disable()
        except Exception:
            # Some browsers have none; the text is written all the same.
            log.info("the screen cannot be kept awake here", exc_info=True)

    def _on_screen(self, event: Any) -> None:
        self._settings.visible = event.control.selected_index == 1
        self._write.visible = not self._settings.visible
        self._page.update()

    def _on_look(self, event: Any) -> None:
        self._changed(self._controller.state)

    def _on_lifecycle(self, event: Any) -> None:
        if event.state in _HIDDEN:
            self._controller.background()
        elif event.state in _SEEN:
            self._controller.foreground()

    async def _on_close(self, event: Any) -> None:
        if self._watching is not None:
            self._watching.cancel()
        if self._frame is not None:
            self._frame.cancel()
        self._controller.listen(_nobody)
        await self._controller.aclose()


def _nobody(state: State) -> None:
    """The page is gone."""


def _keys(page: ft.Page, storage: Storage) -> KeyStore:
    if page.platform is ft.PagePlatform.ANDROID and not page.web:
        # Only the phone's build has this package.
        from view.secure_keys import SecureKeyStore

        return SecureKeyStore()
    return FileKeyStore(storage.key_file)


async def open_app(page: ft.Page) -> None:
    """Flet calls this once a session."""
    await AppView(page, Storage(data_folder())).open()
