"""The words of `/health` and `/ready`, loaded or not. Imports no torch."""

from __future__ import annotations

from fastapi.responses import JSONResponse
from pydantic import BaseModel


class Health(BaseModel):
    """Reply of `/health` and `/ready`.

    Attributes:
        status: one word: ok, ready, loading, draining, stalled or dead.
        detail: a sentence for people.
    """

    status: str
    detail: str


def health_reply(status: int, word: str, detail: str) -> JSONResponse:
    """A reply with an HTTP status, never kept by caches."""
    body = Health(status=word, detail=detail).model_dump()
    return JSONResponse(body, status_code=status, headers={"cache-control": "no-store"})
