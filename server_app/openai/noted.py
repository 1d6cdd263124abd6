"""Routes whose errors are noted for the log and the metrics."""

from __future__ import annotations

from edge_sdk.errors import CosdError
from server_app.observability.facts import current_facts
from server_app.openai.interface.problems import OpenAIRoute


def note(error: CosdError) -> None:
    """Note an error that a client is told of."""
    current_facts().fail(error.code)


class NotedRoute(OpenAIRoute):
    """Routes of this server."""

    def failed(self, error: CosdError) -> None:
        note(error)
