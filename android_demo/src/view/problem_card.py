"""What went wrong, where it is seen."""

from __future__ import annotations

import flet as ft

from cosd_app.state import Problem


class ProblemCard(ft.Container):
    """A problem in plain words; the exact sentence below it, smaller."""

    def __init__(self) -> None:
        self._title = ft.Text(weight=ft.FontWeight.BOLD, color=ft.Colors.ON_ERROR_CONTAINER)
        self._advice = ft.Text(color=ft.Colors.ON_ERROR_CONTAINER)
        self._detail = ft.Text(size=12, selectable=True, color=ft.Colors.ON_ERROR_CONTAINER)
        self._semantics = ft.Semantics(
            content=ft.Column([self._title, self._advice, self._detail], spacing=2, tight=True),
            live_region=True,
            container=True,
        )
        super().__init__(
            self._semantics,
            bgcolor=ft.Colors.ERROR_CONTAINER,
            border_radius=8,
            padding=12,
            visible=False,
        )

    def show(self, problem: Problem | None) -> None:
        """Take the state's problem, or none."""
        self.visible = problem is not None
        if problem is None:
            return
        self._title.value = problem.title
        self._advice.value = problem.advice
        self._detail.value = problem.detail
        self._detail.visible = bool(problem.detail)
        self._semantics.label = f"Problem: {problem.title}"
