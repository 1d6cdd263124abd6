"""Whose fault an error is, as whoever asked a gateway has to see it."""

from __future__ import annotations

from edge_sdk.errors import (
    CosdError,
    InvalidRequest,
    NotFound,
    TransportError,
    Unauthorized,
    UnknownMethod,
    VocabularyMismatch,
)


def for_the_asker(error: CosdError) -> CosdError:
    """What is wrong between gateway and server is no fault of whoever asked here: it becomes a
    502 with the same sentence. What is wrong with the request stays as it is."""
    if isinstance(error, Unauthorized):
        return TransportError(
            f"{error.message} (the gateway's own key for the server, COSD_API_KEY)"
        )
    if isinstance(error, NotFound | UnknownMethod | VocabularyMismatch):
        return TransportError(error.message)
    if isinstance(error, InvalidRequest) and error.field in ("draft", "method", "api_key"):
        return TransportError(error.message)
    return error
