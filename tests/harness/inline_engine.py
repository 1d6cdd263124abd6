"""An engine that nothing has to wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server_app.engine.engine import Engine
from server_app.engine.work import Work


class InlineEngine(Engine):
    """The engine without its thread: works are carried out where they are handed in."""

    async def run(self, work: Work) -> None:
        while not work.done:
            self.runner.step([(work, 512)])
            if work.error is not None:
                raise work.error

    async def call(self, action: Callable[[], Any]) -> Any:
        return action()

    def post(self, action: Callable[[], Any]) -> None:
        action()
